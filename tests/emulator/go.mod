module github.com/sluice-cdc/sluice/tests/emulator

go 1.26.0

require (
	github.com/Azure/go-amqp v1.7.0
	github.com/google/uuid v1.6.0
	github.com/sluice-cdc/sluice/shared v0.1.0
	github.com/stretchr/testify v1.12.1
	go.mongodb.org/mongo-driver/v2 v2.9.3
	go.uber.org/goleak v1.3.0
	golang.org/x/sync v0.24.0
	golang.org/x/text v0.42.0
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect
