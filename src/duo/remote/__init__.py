"""The draft or the target on another machine: gRPC carries the two ring messages between the ends (see wire.proto)."""
