// Command mutants shows that the simulator's random tests catch mistakes in the receive path. For each
// mistake it changes a copy of one source file, builds the tests of internal/sim with that copy, and
// runs them. The tests must fail. The sources themselves are never changed.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// passes are the tests of internal/sim whose worlds are made from seeds, and their numbers of seeds. The
// quick tests come first.
var passes = []pass{
	{`^Test(Random|RandomAlgorithms|RandomReductions|ManyAtOnce|Mixed|BacklogChangesNothing)$`, 2000},
	{`^TestRecoveryIsBounded$`, 60},
}

type pass struct {
	tests string
	seeds int
}

// perRun is the time limit of a pass. A mistake that keeps the tests from ending does not count as
// caught.
const perRun = 3 * time.Minute

func main() {
	log.SetFlags(0)
	only := flag.String("run", "", "run only the mutants whose name matches this regexp")
	flag.Parse()
	if flag.NArg() > 0 {
		log.Fatalf("unknown argument %q", flag.Arg(0))
	}
	match, err := regexp.Compile(*only)
	if err != nil {
		log.Fatalf("-run: %v", err)
	}
	if err := run(os.Stdout, match); err != nil {
		log.Fatal(err)
	}
}

// run tries all mutants that match, and fails if one of them survives.
func run(out io.Writer, match *regexp.Regexp) error {
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	mutants, err := parseMutants(mutantsText)
	if err != nil {
		return err
	}
	began := time.Now()
	found, err := try(dir, nil)
	if err != nil {
		return err
	}
	if found != "" {
		return fmt.Errorf("the tests fail without a mistake: %s", found)
	}
	_, _ = fmt.Fprintf(out, "%6.1fs  passed  without a mistake: all random tests\n", time.Since(began).Seconds())
	var tried, survived int
	for _, m := range mutants {
		if !match.MatchString(m.name) {
			continue
		}
		tried++
		began := time.Now()
		found, err := try(dir, &m)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		verdict := "caught  " + m.name + ": " + found
		if found == "" {
			survived++
			verdict = "SURVIVED  " + m.name + ": no test fails"
		}
		_, _ = fmt.Fprintf(out, "%6.1fs  %s\n", time.Since(began).Seconds(), verdict)
	}
	switch {
	case tried == 0:
		return errors.New("no mutant has such a name")
	case survived > 0:
		return fmt.Errorf("%d of %d mistakes survived: add a test to internal/sim that catches them", survived, tried)
	}
	_, _ = fmt.Fprintf(out, "all %d mistakes were caught\n", tried)
	return nil
}

// try builds the simulator's tests with a mistake, or with none if m is nil, and runs them. It returns
// the first test that failed and its message, or "" if all passed.
func try(dir string, m *mutant) (found string, err error) {
	binary := filepath.Join(dir, "sim.test")
	args := []string{"test", "-c", "-o", binary}
	if m != nil {
		overlay, err := m.overlay(dir)
		if err != nil {
			return "", err
		}
		args = append(args, "-overlay", overlay)
	}
	if b, err := exec.Command("go", append(args, "./internal/sim")...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("the tests do not build: %w\n%s", err, b)
	}
	for _, p := range passes {
		if found, err = p.run(binary); err != nil || found != "" {
			return found, err
		}
	}
	return "", nil
}

// run runs the tests of a pass until one of them fails.
func (p pass) run(binary string) (found string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), perRun)
	defer cancel()
	// In the format for test2json, the verdict on a subtest does not wait for the other subtests.
	cmd := exec.CommandContext(ctx, binary, "-test.v=test2json", "-test.run", p.tests, "-seeds", strconv.Itoa(p.seeds))
	cmd.Dir = filepath.Join("internal", "sim")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return "", err
	}
	found = firstFailure(stdout)
	if found != "" {
		cancel() // one failure is enough
	}
	err = cmd.Wait()
	switch {
	case found != "":
		return found, nil
	case ctx.Err() != nil:
		return "", fmt.Errorf("the tests did not end within %v", perRun)
	case err != nil:
		return "", fmt.Errorf("the tests ended without a verdict: %w", err)
	}
	return "", nil
}

// mark begins each line that package testing prints about a test.
const mark = "\x16"

var said = regexp.MustCompile(`^\s+\w+_test\.go:\d+: (.*)`)

// firstFailure reads the output of tests until one fails. It returns the name of that test and its
// message, or "" if no test fails.
func firstFailure(r io.Reader) string {
	messages := map[string]string{} // by test
	var test string                 // the one that prints
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if m := said.FindStringSubmatch(line); m != nil && messages[test] == "" {
			messages[test] = m[1]
		}
		about, ok := strings.CutPrefix(line, mark)
		if !ok {
			continue
		}
		words := strings.Fields(about)
		if len(words) < 3 {
			continue
		}
		test = words[2] // === NAME TestRandom, or --- FAIL: TestRandom (0.01s)
		if words[1] != "FAIL:" {
			continue
		}
		if messages[test] == "" && lines.Scan() {
			messages[test] = lines.Text() // a panic follows the name
		}
		return fmt.Sprintf("%s: %.120s", test, messages[test])
	}
	return ""
}

// overlay writes the changed file, and the file that makes go test use it instead of the original.
func (m *mutant) overlay(dir string) (path string, err error) {
	original, err := filepath.Abs(filepath.FromSlash(m.file))
	if err != nil {
		return "", err
	}
	source, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	changed, err := m.apply(string(source))
	if err != nil {
		return "", err
	}
	replacement := filepath.Join(dir, "mutant.go")
	if err := os.WriteFile(replacement, []byte(changed), 0o600); err != nil {
		return "", err
	}
	b, err := json.Marshal(map[string]map[string]string{"Replace": {original: replacement}})
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, b, 0o600)
}
