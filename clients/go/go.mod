module github.com/galaxy-notify/galaxy-notify/clients/go

go 1.23

require (
	github.com/google/flatbuffers v25.9.23+incompatible
	github.com/redis/go-redis/v9 v9.17.3
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/dgryski/go-rendezvous v0.0.0-20200823014737-9f7001d12a5f // indirect
)
