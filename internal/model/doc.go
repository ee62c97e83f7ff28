// Package model holds the paper's models: what they predict, computed rather
// than measured, so that it can stand beside what a run measured.
package model
