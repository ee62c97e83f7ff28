package reproduce

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// measurePage makes a page tell its frame the width of its content, and that of the frame.
const measurePage = `<script>addEventListener("load", () => {
  const clipped = [...document.querySelectorAll("main > *, figure, dl, pre, h2")]
    .filter(e => e.getBoundingClientRect().right > innerWidth + 1).length;
  parent.postMessage("width " + document.documentElement.scrollWidth + " of " + innerWidth + ", clipped " + clipped +
    ", plots " + document.querySelectorAll("figure svg").length, "*");
});</script>`

// frame shows a page with a given width, because the window of a browser cannot be as narrow as a phone.
const frame = `<title></title><script>addEventListener("message", e => document.title = e.data)</script>
<iframe src="page.html" style="border:0;height:800px;width:%spx"></iframe>`

// On the widths of a phone and of a desk, nothing is wider than the page: tables scroll inside their containers.
func TestPageFitsItsWindow(t *testing.T) {
	exe := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			exe = path
		}
	}
	if exe == "" {
		t.Skip("no Chromium found")
	}
	if testing.Short() {
		t.Skip("starting a browser takes seconds")
	}
	dir := t.TempDir()
	o := strange()
	o.Command = strings.Repeat("a long command ", 20)
	o.Tables[0].Columns[0] = strings.Repeat("wide ", 50)
	entries := append(cheapEntries(t), entry("C5", giving(o)))
	page := written(t, filepath.Join(dir, "out"), Options{Entries: entries, Quick: true})["index.html"]
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	write("page.html", strings.Replace(page, "</body>", measurePage+"</body>", 1))
	for _, width := range []string{"360", "1280"} {
		file := write("frame.html", fmt.Sprintf(frame, width))
		// #nosec G204: the path comes from LookPath
		cmd := exec.CommandContext(t.Context(), exe, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
			"--user-data-dir="+filepath.Join(dir, "profile"), "--window-size=1400,900", "--virtual-time-budget=5000",
			"--dump-dom", "file://"+file)
		cmd.WaitDelay = 5 * time.Second
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		_, title, _ := strings.Cut(string(out), "<title>")
		title, _, _ = strings.Cut(title, "</title>")
		if want := "width " + width + " of " + width + ", clipped 0, plots 2"; title != want {
			t.Errorf("%s, want %s", title, want)
		}
	}
}
