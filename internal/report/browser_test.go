package report

import (
	"bytes"
	"image"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// browser returns the path of Chromium under one of its usual names.
func browser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("no Chromium found")
	return ""
}

// A browser renders the page without console messages, and the picture is not empty.
func TestInBrowser(t *testing.T) {
	exe := browser(t)
	if testing.Short() {
		t.Skip("starting a browser takes seconds")
	}
	dir := t.TempDir()
	for name, spec := range map[string]string{"paper": paperNetwork, "large": "fat-tree3:1024,32"} {
		page, shot := filepath.Join(dir, name+".html"), filepath.Join(dir, name+".png")
		if err := os.WriteFile(page, []byte(render(t, somePage(t, spec))), 0o600); err != nil {
			t.Fatal(err)
		}
		// #nosec G204: the path comes from LookPath
		cmd := exec.CommandContext(t.Context(), exe, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
			"--enable-logging=stderr", "--user-data-dir="+filepath.Join(dir, "profile"),
			"--window-size=1400,1100", "--screenshot="+shot, "file://"+page)
		cmd.WaitDelay = 5 * time.Second
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", spec, err, out)
		}
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "CONSOLE") {
				t.Errorf("%s: console message: %s", spec, line)
			}
		}
		checkPicture(t, shot)
	}
}

// checkPicture checks that the picture has more colours than an empty page or an error message.
func checkPicture(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if n := colourCount(img); n < 100 {
		t.Errorf("%s has only %d colours", filepath.Base(path), n)
	}
}

func colourCount(img image.Image) int {
	seen := map[[3]uint32]bool{}
	for y := img.Bounds().Min.Y; y < img.Bounds().Max.Y; y += 2 {
		for x := img.Bounds().Min.X; x < img.Bounds().Max.X; x += 2 {
			r, g, b, _ := img.At(x, y).RGBA()
			seen[[3]uint32{r, g, b}] = true
		}
	}
	return len(seen)
}
