package producer

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// problems collects what is wrong with a configuration.
type problems struct{ all []error }

func (p *problems) add(format string, args ...any) {
	p.all = append(p.all, fmt.Errorf(format, args...))
}

func (p *problems) require(ok bool, format string, args ...any) {
	if !ok {
		p.add(format, args...)
	}
}

func (p *problems) join(err error) {
	if err != nil {
		p.all = append(p.all, err)
	}
}

func (p *problems) choice(name, value string, known ...string) {
	p.require(slices.Contains(known, value), "%s: must be one of %s (it is %q)", name, strings.Join(known, ", "), value)
}

func (p *problems) atLeast(name string, value, least int64) {
	p.require(value >= least, "%s: must be at least %d (it is %d)", name, least, value)
}

func (p *problems) positive(name string, d time.Duration) {
	p.require(d > 0, "%s: must be above zero (it is %v)", name, d)
}

// containerName is what Blob storage takes; it refuses another one at every request, for which no waiting helps.
var containerName = regexp.MustCompile(`^[a-z0-9](-?[a-z0-9])+$`)

func (p *problems) container(name, value string) {
	p.require(containerName.MatchString(value) && len(value) >= 3 && len(value) <= 63,
		"%s: must have 3 to 63 small letters, digits and single hyphens between them (it is %q)", name, value)
}

func (p *problems) joined() error { return errors.Join(p.all...) }
