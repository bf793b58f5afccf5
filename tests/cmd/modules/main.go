// Command modules checks the modules of this repository as users without its workspace get them,
// and sets the version in which they require each other.
//
//	go run ./tests/cmd/modules                  # is every go.mod tidy, and does it build alone?
//	go run ./tests/cmd/modules -fix             # make every go.mod tidy
//	go run ./tests/cmd/modules -version v1.2.3  # for scripts/release.sh
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/sluice-cdc/sluice/tests/internal/child"
	"github.com/sluice-cdc/sluice/tests/internal/modules"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	fix := flag.Bool("fix", false, "make tidy what is not")
	version := flag.String("version", "", "let the modules require each other in this `version`")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "modules: %q is no flag: -help lists them\n", flag.Arg(0))
		os.Exit(2)
	}
	if err := run(ctx, *fix, *version); err != nil {
		fmt.Fprintln(os.Stderr, "modules:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, fix bool, version string) (err error) {
	root, err := child.Checkout()
	if err != nil {
		return err
	}
	if version != "" {
		return modules.SetVersion(root, version)
	}
	dir, err := os.MkdirTemp("", "proxy")
	if err != nil {
		return fmt.Errorf("pack the modules: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	proxy, err := modules.Pack(root, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, proxy.Forget(context.WithoutCancel(ctx))) }()
	var errs []error
	for _, folder := range modules.All() {
		errs = append(errs, proxy.Check(ctx, root, folder, fix))
	}
	return errors.Join(errs...)
}
