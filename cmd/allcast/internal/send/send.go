// Package send is "allcast send" and "allcast recv": files to many machines.
package send

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/settings"
	"github.com/allcast/allcast/internal/units"
	"github.com/allcast/allcast/transfer"
)

// Command is "allcast send".
type Command struct {
	Paths []string `arg:"" name:"path" help:"Files and directories, or - for standard input."`

	To        int           `placeholder:"N"`
	Wait      time.Duration `placeholder:"D"`
	Receivers string        `placeholder:"FILE"`
	Linger    time.Duration `placeholder:"D"`

	KeyFile   string `placeholder:"FILE"`
	Insecure  bool   `help:"Without a key, serve other machines. Anybody may then receive or change the data."`
	NoEncrypt bool   `help:"With a key, authenticate receivers, but send the data in the clear."`

	Rate     units.Rate `placeholder:"R"`
	MaxLag   units.Size `default:"64M" placeholder:"SIZE"`
	Compress string     `placeholder:"zstd"`
	Include  []string   `placeholder:"PATTERN" sep:"none"`
	Exclude  []string   `placeholder:"PATTERN" sep:"none"`
	Name     string     `placeholder:"NAME"`
	DryRun   bool       `help:"List what would be sent, with the same checks, and send nothing."`

	Port        int           `default:"7800" placeholder:"N"`
	Listen      string        `placeholder:"ADDR"`
	Segment     units.Size    `placeholder:"SIZE"`
	NoMulticast bool          `help:"Send through a chain of receivers instead of by multicast."`
	Timeout     time.Duration `default:"10s" placeholder:"D"`
}

// FlagHelp implements cli.FlagHelp.
func (Command) FlagHelp() map[string]string {
	return map[string]string{
		"to": "Start when N receivers are ready, and fail if fewer end complete (default 1).",
		"wait": "Start after this time with the receivers that are ready, at least one; with --to or --receivers, as " +
			"soon as these are ready.",
		"receivers": "Start when all receivers in FILE are ready: one host name or address per line, # begins a comment.",
		"linger":    "At the end, wait this long for receivers that were lost, so that they can come back and resume.",
		"key-file": "File with the key, 32 or more hex digits, the same on all sides; by default " +
			"that of ALLCAST_KEY_FILE or ALLCAST_KEY.",
		"rate": "Limit of the rate at which the sender sends, such as 200mbit, to leave room for others.",
		"max-lag": "Data that a receiver may keep in memory while its disk is busy. If others are faster, " +
			"it then drops data and gets it again later.",
		"compress": "Compress the data (zstd), for when the network is slower than the processors.",
		"include": "Send only files that match, such as '*.safetensors'; may be repeated. A pattern " +
			"with a slash applies to the whole path.",
		"exclude": "Leave out files and directories that match; may be repeated.",
		"name":    "With -, the name of the file into which receivers with a directory write (default stdin).",
		"port":    "TCP port on which the sender listens.",
		"listen":  "Address to listen on (default: all).",
		"segment": "Length of a segment: 4K to 64M (default 8M, less with a low --rate).",
		"timeout": "Silence after which a receiver is lost. A closed connection counts at once.",
	}
}

// Arguments implements cli.Arguments.
func (Command) Arguments() (takes, needs string) {
	return "paths or -", "paths of files and directories, or - for standard input"
}

// Help implements kong.HelpProvider.
func (Command) Help() string {
	return `Sends files, directories or standard input to any number of receivers ("allcast recv"). Over network multicast
the data leaves this machine once. Where multicast does not work, each receiver passes the data on to the next one.

Receivers connect to the TCP port of the sender; no list of them is needed. A receiver that comes late takes part from
the next segment on and gets the beginning afterwards. A receiver that dies, stalls or runs out of disk does not stop
the others, and the summary names it. Receivers and senders that are started again resume: segments that are on disk,
and whose hashes (BLAKE3) are right, are not sent again. Ctrl-C leaves a state from which both sides can resume.

Names in the target directory are the base names of the paths; the contents of "." go into it directly. Modes, times,
symbolic and hard links and holes are kept, owners and setuid bits are not. Devices, sockets, and symbolic links that
lead outside are an error. A file that changes while it is read is an error, too.

With a key, receivers prove that they have it, and all data is encrypted. Without a key, only receivers on this machine
are served, unless --insecure is given on both sides. Standard input cannot be read again: it takes no late receivers,
and a receiver that falls behind by more than --max-lag fails.

With --json, the last object has the event "summary" and lists every receiver with complete, bytes, seconds and error.

Exit status: 0 all receivers are complete; 1 some are not, or the transfer failed; 2 usage or bad input; 3 a receiver
found wrong data.

Examples:
  (umask 077; openssl rand -hex 32 >job.key)
  allcast send ./checkpoint-4000 --to 7 --key-file job.key
  allcast send ./dataset --wait 30s --key-file job.key --rate 2gbit --exclude '*.tmp'
  tar c ./layers | allcast send - --to 3 --key-file job.key`
}

// Run sends.
func (c *Command) Run(e *cli.Env) error {
	o, err := c.options()
	if err != nil {
		return err
	}
	if c.DryRun {
		return c.dryRun(e, o)
	}
	ctx, stop := cli.UntilSignal()
	defer stop()
	show := newShow(e, "sent")
	o.Events = show.event
	s, err := transfer.Send(ctx, o)
	show.line.Clear()
	if s == nil {
		return failure(ctx, e, err)
	}
	if printErr := show.summary(s, err); printErr != nil {
		return printErr
	}
	return failure(ctx, e, err)
}

// options checks the flags.
func (c *Command) options() (o transfer.SendOptions, err error) {
	bad := func(format string, args ...any) (transfer.SendOptions, error) { return o, cli.Usagef(format, args...) }
	key, err := readKey(c.KeyFile)
	if err != nil {
		return bad("%v", err)
	}
	pipe := slices.Contains(c.Paths, "-")
	listen := net.JoinHostPort(c.Listen, strconv.Itoa(c.Port))
	ip := net.ParseIP(c.Listen)
	switch {
	case pipe && len(c.Paths) > 1:
		return bad("- stands alone: standard input cannot be sent together with files")
	case pipe && (c.DryRun || len(c.Include) > 0 || len(c.Exclude) > 0):
		return bad("--dry-run, --include and --exclude have no effect on standard input")
	case pipe && c.Linger > 0:
		return bad("--linger has no effect on standard input, which cannot be read again")
	case !pipe && c.Name != "":
		return bad("--name has no effect without -")
	case c.To < 0:
		return bad("--to %d: want 1 or more", c.To)
	case c.To > 0 && c.Receivers != "":
		return bad("--to and --receivers exclude each other")
	case c.Wait < 0 || c.Linger < 0:
		return bad("--wait %v, --linger %v: want 0 or more", c.Wait, c.Linger)
	case c.Timeout < 500*time.Millisecond:
		return bad("--timeout %v: want at least 500ms", c.Timeout)
	case c.Port < 0 || c.Port > 65535:
		return bad("--port %d: want 0 to 65535", c.Port)
	case c.Compress != "" && c.Compress != "zstd":
		return bad("--compress %q: unknown; valid: zstd", c.Compress)
	case c.Segment != 0 && (c.Segment < 4<<10 || c.Segment > 64<<20):
		return bad("--segment %v: want 4K to 64M", c.Segment)
	case c.MaxLag < 1:
		return bad("--max-lag %v: want more than 0", c.MaxLag)
	case key == nil && c.NoEncrypt:
		return bad("--no-encrypt has no effect without a key")
	case key != nil && c.Insecure:
		return bad("--insecure has no effect with a key")
	case key == nil && !c.Insecure && ip != nil && !ip.IsLoopback() && !ip.IsUnspecified():
		return bad("--listen %s without a key: want --key-file FILE, or --insecure to let anybody receive", c.Listen)
	}
	o = transfer.SendOptions{
		Paths: c.Paths, Include: c.Include, Exclude: c.Exclude, StdinName: c.Name, Listen: listen, To: c.To, Wait: c.Wait,
		Linger: c.Linger, Key: key, NoEncrypt: c.NoEncrypt, Insecure: c.Insecure, Rate: float64(c.Rate),
		MaxLag: int64(c.MaxLag), Compress: c.Compress != "", Segment: int64(c.Segment), NoMulticast: c.NoMulticast,
		Timeout: c.Timeout,
	}
	if pipe {
		o.Paths, o.Stdin = nil, os.Stdin
	}
	if c.Receivers != "" {
		if o.Receivers, err = readReceivers(c.Receivers); err != nil {
			return bad("--receivers: %v", err)
		}
	}
	return o, nil
}

// readKey reads the key from a file, or else from the environment.
func readKey(file string) ([]byte, error) {
	if file != "" {
		return settings.KeyFile("--key-file", file)
	}
	return settings.Key(settings.Process)
}

// readReceivers reads the names in a file.
func readReceivers(name string) (all []string, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		text, _, _ := strings.Cut(lines.Text(), "#")
		if text = strings.TrimSpace(text); text != "" {
			all = append(all, text)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s names no receiver", name)
	}
	return all, nil
}

// dryRun lists what would be sent.
func (c *Command) dryRun(e *cli.Env, o transfer.SendOptions) error {
	p, err := transfer.DryRun(context.Background(), o)
	if err != nil {
		return failure(context.Background(), e, err)
	}
	t := &cli.Table{Left: true}
	t.Row("type", "bytes", "path")
	for _, entry := range p.Entries {
		if e.JSON {
			err = e.PrintJSON(struct {
				Event string `json:"event"`
				transfer.PlanEntry
				Schema int `json:"schema"`
			}{"entry", entry, schema})
			if err != nil {
				return err
			}
		}
		t.Row(entry.Type, entry.Size, units.Printable(entry.Path))
	}
	if e.JSON {
		return e.PrintJSON(struct {
			Event  string `json:"event"`
			Files  int    `json:"files"`
			Bytes  int64  `json:"bytes"`
			Data   int64  `json:"data"`
			Schema int    `json:"schema"`
		}{"plan", p.Files, p.Bytes, p.Data, schema})
	}
	t.Note("%d files, %d bytes, of which %d are data", p.Files, p.Bytes, p.Data)
	return e.PrintTable(t)
}

// failure returns the error of a command for an error of a transfer.
func failure(ctx context.Context, e *cli.Env, err error) error {
	switch {
	case err == nil:
		return nil
	case cli.Interrupted(ctx) != nil:
		return cli.Interrupted(ctx)
	case errors.Is(err, transfer.ErrInput):
		return cli.Usagef("%v", strings.TrimPrefix(err.Error(), transfer.ErrInput.Error()+": "))
	case errors.Is(err, transfer.ErrVerify):
		e.Message("%v", err)
		return cli.StatusError(cli.StatusWrong)
	}
	return err
}
