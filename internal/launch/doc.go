// Package launch runs a program once a rank on this machine: it tells each process
// its rank, passes its output on line by line, ends them all when one fails, and leaves none
// behind.
package launch
