package send

import (
	"net"
	"os"
	"strconv"
	"time"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/units"
	"github.com/allcast/allcast/transfer"
)

// Recv is "allcast recv".
type Recv struct {
	Dir string `arg:"" name:"dir" help:"Target directory, or - for standard output."`

	From      string        `required:"" placeholder:"HOST[:PORT]"`
	KeyFile   string        `placeholder:"FILE"`
	Insecure  bool          `help:"Without a key, accept a sender on another machine, and data that anybody may change."`
	NoEncrypt bool          `help:"With a key, receive the data in the clear; the sender must have the same flag."`
	Verify    bool          `help:"Read all files again after they were flushed, and compare their hashes."`
	Name      string        `placeholder:"NAME"`
	Retry     time.Duration `default:"1m" placeholder:"D"`
	MaxLag    units.Size    `default:"64M" placeholder:"SIZE"`
}

// FlagHelp implements cli.FlagHelp.
func (Recv) FlagHelp() map[string]string {
	return map[string]string{
		"from":     "Address of the sender. The default port is " + strconv.Itoa(transfer.DefaultPort) + ".",
		"key-file": "File with the key, as for allcast send; by default that of ALLCAST_KEY_FILE or ALLCAST_KEY.",
		"name":     "Name of this receiver in the sender's summary (default: the host name).",
		"retry":    "Time to wait for the sender, at first and whenever it is lost. 0: try once.",
		"max-lag":  "With -, data that may wait in memory until the segments before it have arrived.",
	}
}

// Arguments implements cli.Arguments.
func (Recv) Arguments() (takes, needs string) {
	return "one directory or -", "a target directory, or - for standard output"
}

// Help implements kong.HelpProvider.
func (Recv) Help() string {
	return `Receives what "allcast send" sends, into a directory, which it makes if necessary, or to standard output.

Files grow in DIR/.allcast-recv. Each segment is verified by its hash before it is written. Complete files are flushed
and then renamed to their places, so that no name ever shows half a file. They replace files and links of the same name;
existing links are never followed, and nothing outside DIR is written. If the receiver or the sender ends early, run the
same command again: verified data is not received again. The directory .allcast-recv is removed at the end; remove it by
hand to give a transfer up.

Standard output takes one file or pipe, in order, and cannot resume.

Exit status: 0 everything is here and verified; 1 it is not; 2 usage or bad input; 3 data was wrong.

Examples:
  allcast recv /data --from host0 --key-file job.key
  allcast recv - --from host0 --key-file job.key | tar x`
}

// Run receives.
func (c *Recv) Run(e *cli.Env) error {
	o, err := c.options(e)
	if err != nil {
		return err
	}
	ctx, stop := cli.UntilSignal()
	defer stop()
	show := newShow(e, "received")
	o.Events = show.event
	r, err := transfer.Receive(ctx, o)
	show.line.Clear()
	if r == nil {
		return failure(ctx, e, err)
	}
	if printErr := show.result(r, c.Dir == "-", err); printErr != nil {
		return printErr
	}
	return failure(ctx, e, err)
}

// options checks the flags.
func (c *Recv) options(e *cli.Env) (o transfer.ReceiveOptions, err error) {
	bad := func(format string, args ...any) (transfer.ReceiveOptions, error) {
		return o, cli.Usagef(format, args...)
	}
	key, err := readKey(c.KeyFile)
	if err != nil {
		return bad("%v", err)
	}
	from := c.From
	if host, port, err := net.SplitHostPort(from); err != nil {
		from = net.JoinHostPort(trimBrackets(from), strconv.Itoa(transfer.DefaultPort))
	} else if _, err := net.LookupPort("tcp", port); err != nil || host == "" {
		return bad("--from %q: want HOST or HOST:PORT", c.From)
	}
	out := c.Dir == "-"
	switch {
	case c.From == "" || c.Dir == "":
		return bad("want a directory or -, and --from HOST[:PORT]")
	case out && e.JSON:
		return bad("--json and - both need standard output")
	case out && c.Verify:
		return bad("--verify has no effect on standard output, which cannot be read again")
	case c.Retry < 0:
		return bad("--retry %v: want 0 or more", c.Retry)
	case c.MaxLag < 1:
		return bad("--max-lag %v: want more than 0", c.MaxLag)
	case key == nil && c.NoEncrypt:
		return bad("--no-encrypt has no effect without a key")
	case key != nil && c.Insecure:
		return bad("--insecure has no effect with a key")
	}
	o = transfer.ReceiveOptions{
		From: from, Dir: c.Dir, Name: c.Name, Key: key, NoEncrypt: c.NoEncrypt, Insecure: c.Insecure, Verify: c.Verify,
		MaxLag: int64(c.MaxLag), Retry: c.Retry,
	}
	if c.Retry == 0 {
		o.Retry = -1
	}
	if out {
		o.Dir, o.Stdout = "", os.Stdout
	}
	return o, nil
}

// trimBrackets removes the brackets of an IPv6 address without a port.
func trimBrackets(s string) string {
	if n := len(s); n > 1 && s[0] == '[' && s[n-1] == ']' {
		return s[1 : n-1]
	}
	return s
}
