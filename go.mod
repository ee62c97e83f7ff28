module github.com/allcast/allcast

go 1.26

require (
	github.com/alecthomas/kong v1.16.1
	pgregory.net/rapid v1.3.0
)

require (
	github.com/cockroachdb/datadriven v1.0.3 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
)
