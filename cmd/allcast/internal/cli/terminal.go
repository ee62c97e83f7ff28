package cli

import (
	"io"
	"os"
)

// IsTerminal reports whether w is a terminal. It also accepts other character devices, such as /dev/null.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
