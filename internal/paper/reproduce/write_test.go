package reproduce

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/figure"
	"github.com/allcast/allcast/internal/paper"
)

type build string

func (b build) String() string { return string(b) }

var someRun = About{
	Build: build("allcast test"), Seed: 1, Date: time.Unix(0, 0).UTC(), LeftOut: []string{"labs <here>"},
}

// written runs entries, writes them and returns all files.
func written(t *testing.T, dir string, o Options) map[string]string {
	t.Helper()
	d, err := CreateDirectory(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Write(someRun, runAll(t, o)); err != nil {
		t.Fatal(err)
	}
	return filesOf(t, dir)
}

func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	if err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		files[filepath.ToSlash(name)] = string(text)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return files
}

// cheapEntries are real entries that take milliseconds and measure nothing.
func cheapEntries(t *testing.T) []paper.Entry {
	t.Helper()
	entries, err := Select(paper.Entries(), []string{"fig7", "C4", "appA"})
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// Two runs with the same seed give the same data. Only the page and the manifest have times.
func TestRunsAreRepeatable(t *testing.T) {
	dir := t.TempDir()
	o := Options{Entries: cheapEntries(t), Seed: 7, Quick: true}
	first, second := written(t, filepath.Join(dir, "a"), o), written(t, filepath.Join(dir, "b"), o)
	if len(first) != len(second) || len(first) < 10 {
		t.Errorf("%d and %d files", len(first), len(second))
	}
	for name, text := range first {
		if name != "index.html" && name != manifestFile && second[name] != text {
			t.Errorf("%s differs", name)
		}
	}
}

// Each plot can be drawn again from its data file, byte for byte.
func TestPlotsCanBeDrawnAgain(t *testing.T) {
	files := written(t, filepath.Join(t.TempDir(), "out"), Options{Entries: cheapEntries(t), Quick: true})
	plots := 0
	for name, svg := range files {
		data, ok := strings.CutSuffix(name, ".svg")
		if !ok {
			continue
		}
		plots++
		f, err := figure.Read(strings.NewReader(files[data+".json"]))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var again bytes.Buffer
		if err := figure.Draw(&again, f); err != nil || again.String() != svg {
			t.Errorf("%s differs (%v)", name, err)
		}
		if !strings.Contains(files["index.html"], svg) {
			t.Errorf("%s is not on the page", name)
		}
	}
	if plots < 2 {
		t.Errorf("%d plots", plots)
	}
}

// strange is an outcome whose texts would break a page that does not escape them.
func strange() paper.Outcome {
	o := paper.Outcome{
		Verdict: paper.Miss, Reason: "because of `a < b` & more", Ours: "1 <script>alert(1)</script>", Command: "x && y",
		LeftOut: []string{"lab: needs root"}, Measured: true,
		Tables: []paper.Table{{
			Name: "t", Title: "T", Columns: []string{"a, b", "µs"}, Rows: [][]any{{`x "y"`, 1.0 / 3}, {1 << 20, int64(-5)}},
		}},
	}
	for i := range maxPageRows {
		o.Tables[0].Rows = append(o.Tables[0].Rows, []any{"row", i})
	}
	return o
}

func TestFiles(t *testing.T) {
	entries := []paper.Entry{entry("fig7", giving(strange())), entry("C4", giving(strange()))}
	files := written(t, filepath.Join(t.TempDir(), "out"), Options{Entries: entries})
	const want = "\"a, b\",µs\n\"x \"\"y\"\"\",0.3333333333333333\n1048576,-5\n"
	if !strings.HasPrefix(files["fig7/t.csv"], want) {
		t.Errorf("CSV: %q", files["fig7/t.csv"])
	}
	var raw map[string]any
	if err := json.Unmarshal([]byte(files[manifestFile]), &raw); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{
		"schema", "program", "build", "machine", "seed", "quick", "root", "date", "entries", "files",
	} {
		if raw[key] == nil {
			t.Errorf("the manifest has no %s", key)
		}
	}
	if n := len(raw["files"].([]any)); n != len(files)-1 {
		t.Errorf("the manifest lists %d of %d files", n, len(files)-1)
	}
	page := files["index.html"]
	for _, want := range []string{
		"1 &lt;script&gt;alert(1)", "<code>a &lt; b</code> &amp; more", "x &amp;&amp; y", "labs &lt;here&gt;",
		"1\u202f048\u202f576", "0.3333",
		"2 more rows, and all digits", "The data is shown under <a href=\"#fig7\">fig7</a>",
		"2 worse than recorded", "needs root",
		"(Measured on this machine.)",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	for _, bad := range []string{"<script", "src=", "http://", "https://", "ZgotmplZ", "@import", "url("} {
		if strings.Contains(strings.ReplaceAll(page, `xmlns="http://www.w3.org/2000/svg"`, ""), bad) {
			t.Errorf("the page has %q", bad)
		}
	}
}

func TestDirectory(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "out")
	o := Options{Entries: []paper.Entry{entry("fig7", giving(strange()))}}
	written(t, dir, o)
	o.Entries[0] = entry("C4", giving(paper.Outcome{Verdict: paper.Hit}))
	if files := written(t, dir, o); files["fig7/t.csv"] != "" || files["C4/entry.json"] == "" {
		t.Errorf("the second run left files of the first, or wrote none: %d files", len(files))
	}
	link := filepath.Join(parent, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	d, err := CreateDirectory(link)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Write(someRun, runAll(t, o)); err != nil {
		t.Fatal(err)
	}
	if target, err := os.Readlink(link); err != nil || target != dir {
		t.Errorf("the link was replaced: %q, %v", target, err)
	}

	write := func(name string) string {
		path := filepath.Join(parent, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for want, path := range map[string]string{
		"is a file":                 write("file"),
		"is not empty":              filepath.Dir(write("mine/notes")),
		"not the output of an earl": filepath.Dir(write("other/" + manifestFile)),
		"also holds C4":             filepath.Dir(filepath.Dir(write("out/C4/notes"))),
		"no such file or directory": filepath.Join(parent, "none", "out"),
	} {
		if _, err := CreateDirectory(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	t.Chdir(t.TempDir())
	if _, err := CreateDirectory("."); err == nil || !strings.Contains(err.Error(), "is the current directory") {
		t.Errorf("the current directory: %v", err)
	}
	left, err := os.ReadDir(parent)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range left {
		if strings.Contains(e.Name(), ".tmp") {
			t.Errorf("%s is left", e.Name())
		}
	}
}

func TestDiscard(t *testing.T) {
	parent := t.TempDir()
	d, err := CreateDirectory(filepath.Join(parent, "out"))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.write("a/b", nil); err != nil {
		t.Fatal(err)
	}
	d.Discard()
	d.Discard()
	if left, err := os.ReadDir(parent); err != nil || len(left) > 0 {
		t.Errorf("%v is left (%v)", left, err)
	}
}

func TestNumbersForPeople(t *testing.T) {
	for want, v := range map[string]any{
		"0": 0.0, "0.5": 0.5, "12.35": 12.3456, "123.5": 123.456, "1235": 1234.56, "5\u202f732\u202f352": int64(5732352),
		"12\u202f346": 12345.6, "0.00012": 0.00012, "1e-06": 1e-6, "−1\u202f000\u202f000": -1000000,
		"text": "text", "100": 100.0,
	} {
		if got := cell(v); got != want {
			t.Errorf("%v is written %q, want %q", v, got, want)
		}
	}
	for want, d := range map[string]time.Duration{
		"< 1 s": time.Millisecond, "12 s": 12 * time.Second, "3 min": 3 * time.Minute,
	} {
		if got := took(d); got != want {
			t.Errorf("%v is written %q, want %q", d, got, want)
		}
	}
}

func TestModelName(t *testing.T) {
	if got := modelName("processor\t: 0\nmodel\t: 1\nmodel name\t: Some CPU \nx\n", "amd64"); got != "Some CPU" {
		t.Errorf("%q", got)
	}
	if got := modelName("processor : 0\n", "riscv64"); got != "riscv64" {
		t.Errorf("%q", got)
	}
	if m := ThisMachine(); m.Cores < 1 || m.Kernel == "" || m.CPU == "" {
		t.Errorf("%+v", m)
	}
}
