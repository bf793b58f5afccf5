package modules

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing/fstest"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"
)

// packed is a module that is ready to be written: its files by their path, separated into those
// that change with the version and the others.
type packed struct {
	path  string
	mod   []byte
	files []zip.File
}

// Pack writes the released modules of the repository at root into dir, as a proxy of them. They get
// a version that no release has and that is derived from their content. They also require each
// other in that version.
func Pack(root, dir string) (*Proxy, error) {
	sum, err := content(root)
	if err != nil {
		return nil, err
	}
	p := &Proxy{Dir: dir, Version: "v0.0.0-dev." + sum, sums: map[string][2]string{}}
	for _, folder := range Released() {
		m, err := read(root, folder, p.Version)
		if err != nil {
			return nil, err
		}
		if err := p.write(m); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// content returns a short hash of everything that is packed.
func content(root string) (string, error) {
	h := sha256.New()
	for _, folder := range Released() {
		m, err := read(root, folder, "v0.0.0")
		if err != nil {
			return "", err
		}
		for _, f := range m.files {
			fmt.Fprintf(h, "%s/%s\n", folder, f.Path())
			if err := copyTo(h, f); err != nil {
				return "", err
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil))[:12], nil
}

func copyTo(w io.Writer, f zip.File) error {
	r, err := f.Open()
	if err != nil {
		return fmt.Errorf("read %s: %w", f.Path(), err)
	}
	defer func() { _ = r.Close() }() // it was only read
	if _, err := io.Copy(w, r); err != nil {
		return fmt.Errorf("read %s: %w", f.Path(), err)
	}
	return nil
}

// read returns the module in a folder of the repository, in a version; if the version is empty,
// exactly as it is.
func read(root, folder, version string) (*packed, error) {
	dir := filepath.Join(root, filepath.FromSlash(folder))
	checked, err := zip.CheckDir(dir)
	if err == nil {
		err = checked.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("pack %s: %w", folder, err)
	}
	m := &packed{path: Path(folder)}
	licensed := false
	for _, name := range checked.Valid {
		path, err := filepath.Rel(dir, name)
		if err != nil {
			return nil, fmt.Errorf("pack %s: %w", folder, err)
		}
		path = filepath.ToSlash(path)
		f := file{os.DirFS(dir), path}
		switch {
		case path == "go.mod":
			if m.mod, err = require(name, version); err != nil {
				return nil, err
			}
			f = inMemory(path, m.mod)
		case path == "go.sum" && version != "":
			text, err := os.ReadFile(name)
			if err != nil {
				return nil, fmt.Errorf("pack %s: %w", folder, err)
			}
			f = inMemory(path, foreign(text))
		case path == "LICENSE":
			licensed = true
		}
		m.files = append(m.files, f)
	}
	if !licensed {
		m.files = append(m.files, file{os.DirFS(root), "LICENSE"})
	}
	return m, nil
}

// write adds a module to the proxy, in the layout of the GOPROXY protocol.
func (p *Proxy) write(m *packed) error {
	escaped, err := module.EscapePath(m.path)
	if err != nil {
		return fmt.Errorf("pack %s: %w", m.path, err)
	}
	at := filepath.Join(p.Dir, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(at, 0o750); err != nil {
		return fmt.Errorf("pack %s: %w", m.path, err)
	}
	var archive bytes.Buffer
	if err := zip.Create(&archive, module.Version{Path: m.path, Version: p.Version}, m.files); err != nil {
		return fmt.Errorf("pack %s: %w", m.path, err)
	}
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{p.Version, time.Unix(0, 0).UTC()})
	if err != nil {
		return fmt.Errorf("pack %s: %w", m.path, err)
	}
	for name, text := range map[string][]byte{
		"list": []byte(p.Version + "\n"), p.Version + ".info": info, p.Version + ".mod": m.mod, p.Version + ".zip": archive.Bytes(),
	} {
		if err := os.WriteFile(filepath.Join(at, name), text, 0o600); err != nil {
			return fmt.Errorf("pack %s: %w", m.path, err)
		}
	}
	whole, err := dirhash.HashZip(filepath.Join(at, p.Version+".zip"), dirhash.Hash1)
	if err != nil {
		return fmt.Errorf("hash %s: %w", m.path, err)
	}
	mod, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(m.mod)), nil })
	if err != nil {
		return fmt.Errorf("hash %s: %w", m.path, err)
	}
	p.sums[m.path] = [2]string{whole, mod}
	return nil
}

// file is a file of a module, whose path there is its path in the file system.
type file struct {
	in   fs.FS
	path string
}

func (f file) Path() string                 { return f.path }
func (f file) Lstat() (fs.FileInfo, error)  { return fs.Stat(f.in, f.path) } // CheckDir lists no links
func (f file) Open() (io.ReadCloser, error) { return f.in.Open(f.path) }

// inMemory returns a file with the text.
func inMemory(path string, text []byte) file {
	return file{fstest.MapFS{path: {Data: text, Mode: 0o644}}, path}
}
