module checker

go 1.23

require golang.org/x/mod v0.21.0
