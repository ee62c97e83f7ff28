//go:build unix

package allcast_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
	"github.com/allcast/allcast/internal/aggregate"
	"github.com/allcast/allcast/internal/observe"
	"github.com/allcast/allcast/internal/testenv"
)

const (
	dashboardFile = "packaging/grafana/allcast.json"
	alertsFile    = "packaging/prometheus/alerts.yml"
)

var (
	metricName = regexp.MustCompile(`\ballcast_[a-z_]+`)
	metricType = regexp.MustCompile(`(?m)^# TYPE (allcast_[a-z_]+) ([a-z]+)$`)
)

// knownMetrics returns the metrics that ranks and aggregators really export, and checks them with promtool.
func knownMetrics(t *testing.T) map[string]bool {
	t.Helper()
	var (
		mu    sync.Mutex
		texts []string
	)
	allcasttest.Run(t, 2, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		for _, algo := range []string{"mcast", "ring"} {
			if err := c.Allgather(ctx, make([]byte, 100_000), make([]byte, 200_000), allcast.WithAlgorithm(algo)); err != nil {
				return err
			}
		}
		var text bytes.Buffer
		err := c.WriteMetrics(&text)
		mu.Lock()
		defer mu.Unlock()
		texts = append(texts, text.String())
		return err
	})
	var text bytes.Buffer
	m := observe.Metrics{Version: allcast.Version, Aggregator: &aggregate.State{Jobs: []aggregate.JobState{{Job: "a"}}}}
	if err := m.Write(&text); err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, text := range append(texts, text.String()) {
		testenv.Promtool(t, text, "check", "metrics")
		for _, m := range metricType.FindAllStringSubmatch(text, -1) {
			known[m[1]] = true
			if m[2] == "histogram" {
				known[m[1]+"_bucket"], known[m[1]+"_sum"], known[m[1]+"_count"] = true, true, true
			}
		}
	}
	return known
}

type panel struct {
	ID      int    `json:"id"`
	Type    string `json:"type"`
	Title   string `json:"title"`
	Text    string `json:"description"`
	Targets []struct {
		Expr string `json:"expr"`
	} `json:"targets"`
}

func readDashboard(t *testing.T) (panels []panel, text string) {
	t.Helper()
	b, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []panel `json:"panels"`
	}
	if err := json.Unmarshal(b, &dashboard); err != nil {
		t.Fatal(err)
	}
	return dashboard.Panels, string(b)
}

// Dashboard and alerts use only metrics that exist, and the page about operations lists these metrics.
func TestDashboardMetrics(t *testing.T) {
	known := knownMetrics(t)
	_, dashboard := readDashboard(t)
	alerts, err := os.ReadFile(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, text := range []string{dashboard, string(alerts)} {
		for _, name := range metricName.FindAllString(text, -1) {
			used[name] = true
		}
	}
	delete(used, "allcast_") // of a pattern of names
	for name := range used {
		if !known[name] {
			t.Errorf("a panel or an alert uses %s, which no process exports", name)
		}
	}
	if len(used) < 20 {
		t.Errorf("only %d metrics are used", len(used))
	}
}

// Every panel has a query and a description, and Prometheus can parse the queries.
func TestDashboardQueries(t *testing.T) {
	panels, _ := readDashboard(t)
	ids := map[int]bool{}
	fill := strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h", "$instance", ".*", "$rank", ".*")
	var rules strings.Builder
	rules.WriteString("groups:\n  - name: panels\n    rules:\n")
	for _, p := range panels {
		if ids[p.ID] {
			t.Errorf("two panels have the number %d", p.ID)
		}
		ids[p.ID] = true
		if p.Type != "row" && (len(p.Targets) == 0 || p.Text == "" || p.Title == "") {
			t.Errorf("the panel %q lacks a query or a description", p.Title)
		}
		for i, target := range p.Targets {
			fmt.Fprintf(&rules, "      - {record: 'panel:%d:%d', expr: '%s'}\n", p.ID, i, fill.Replace(target.Expr))
		}
	}
	file := filepath.Join(t.TempDir(), "panels.yml")
	if err := os.WriteFile(file, []byte(rules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if !testenv.Promtool(t, "", "check", "rules", file) {
		t.Skip("promtool is not in PATH; only the structure of the dashboard was checked")
	}
}

func TestAlerts(t *testing.T) {
	if !testenv.Promtool(t, "", "check", "rules", alertsFile) {
		t.Skip("promtool is not in PATH")
	}
	testenv.Promtool(t, "", "test", "rules", "packaging/prometheus/alerts_test.yml")
}
