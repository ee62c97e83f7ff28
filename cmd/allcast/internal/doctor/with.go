package doctor

import (
	"os"
	"strings"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/launch"
)

// here is the name of this machine among those of --with.
const here = "this machine"

// runWith starts a rank on each of some machines and on this one. This machine has the last rank, because ssh knows an
// address by which others can be reached, but not one of this machine.
func (c *Command) runWith(e *cli.Env) error {
	names := c.hosts()
	list, err := launch.ParseHosts(strings.Join(names, ","))
	if err != nil {
		return cli.Usagef("--with: %v", err)
	}
	for _, h := range list {
		if h.Slots != 1 || h.Name == "localhost" {
			return cli.Usagef("--with %s: want the names of other machines", h.Name)
		}
	}
	ssh := "ssh"
	if c.SSH != nil {
		ssh = *c.SSH
	}
	hosts, err := cli.Hosts(append(list, launch.Host{Name: "localhost", Slots: 1}), ssh)
	if err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	command := []string{exe, "doctor", "--names", strings.Join(append(names, here), ",")}
	if e.JSON {
		command = append(command, "--json")
	}
	if c.Long {
		command = append(command, "--long", "--long-for", c.LongFor.String())
	}
	if c.Rate != nil {
		command = append(command, "--rate", c.Rate.String())
	}
	return e.Launch(launch.Config{
		Command: command, Dir: "/", // which all machines have
		Prefix: func(rank int, stderr bool) string {
			if !stderr || rank >= len(names) {
				return ""
			}
			return "[" + names[rank] + "] "
		},
	}, hosts)
}
