module example/consumer

go 1.23

require github.com/delayq/delayq/clients/go v0.0.0

replace github.com/delayq/delayq/clients/go => ../../clients/go
