// Package model holds the paper's models of memory, traffic and speed-up, and the cost
// model that chooses algorithms. Their predictions can be compared with measured runs.
package model
