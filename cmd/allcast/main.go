// Command allcast runs, simulates and models multicast collectives.
package main

import (
	"os"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
)

func main() {
	os.Exit(cli.Run(&commands{}, os.Args[1:], os.Stdout, os.Stderr))
}
