// Package reproduce runs entries of the paper and writes what they find: data, plots, a page and a manifest.
package reproduce
