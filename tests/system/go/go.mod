module roster.test/lookup

go 1.19
