// Package launch runs a program once per rank on this machine. It tells each process its rank, copies its
// output line by line, ends all processes when one fails, and leaves none behind.
package launch
