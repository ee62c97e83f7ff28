// Package aggregator is the aggregator of labs that test programs build: a test program cannot import the command
// "allcast aggregator".
package aggregator

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/allcast/allcast/internal/aggregate"
	"github.com/allcast/allcast/internal/units"
)

// Run runs an aggregator with the flags that the lab uses. It returns only an error.
func Run(args []string) error {
	f := flag.NewFlagSet("aggregator", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	listen, parent, key := f.String("listen", "", ""), f.String("parent", "", ""), f.String("site-key-file", "", "")
	var buffer, memory units.Size
	f.TextVar(&buffer, "buffer", buffer, "")
	f.TextVar(&memory, "job-memory", memory, "")
	if err := f.Parse(args); err != nil {
		return err
	}
	text, err := os.ReadFile(*key)
	if err != nil {
		return err
	}
	site, err := hex.DecodeString(string(bytes.TrimSpace(text)))
	if err != nil {
		return err
	}
	_, err = aggregate.Listen(aggregate.Config{
		Listen: *listen, Parent: *parent, SiteKey: site, Buffer: int(buffer), JobMemory: int64(memory),
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintln(os.Stdout, "listening on", *listen)
	select {} // until it is killed
}
