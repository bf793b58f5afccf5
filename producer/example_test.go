package producer_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"

	"github.com/sluice-cdc/sluice/producer"
)

// setenv sets a variable of the environment and returns what unsets it.
func setenv(name, value string) (unset func()) {
	if err := os.Setenv(name, value); err != nil {
		panic(err)
	}
	return func() {
		if err := os.Unsetenv(name); err != nil {
			panic(err)
		}
	}
}

// The settings come from the environment. Every setting that is missing or wrong is in the error.
func ExampleLoadConfig() {
	for name, value := range map[string]string{
		"MONGODB_URI":           "mongodb://db.example/?replicaSet=rs0",
		"MONGODB_DATABASE":      "shop",
		"MONGODB_COLLECTION":    "events",
		"SERVICE_BUS_NAMESPACE": "contoso.servicebus.windows.net",
		"SERVICE_BUS_TOPIC":     "changes",
		"BLOB_ACCOUNT_URL":      "https://contoso.blob.core.windows.net",
	} {
		defer setenv(name, value)()
	}
	cfg, err := producer.LoadConfig()
	fmt.Println(cfg.Stream, cfg.SessionKey, cfg.TakeoverAfter, err)

	defer setenv("STANDBY_POLL", "10ms")()
	_, err = producer.LoadConfig()
	fmt.Println(err)
	// Output:
	// shop.events aggregate 4s <nil>
	// 1 setting must be fixed:
	//   - STANDBY_POLL: must be at least 50ms (it is 10ms)
}

// A program that shares its process with other work passes its own context, settings and logger.
func ExampleRun() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	cfg, err := producer.LoadConfig()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if err := producer.Run(ctx, cfg, producer.Options{Logger: slog.Default()}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
