package amqp

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"slices"
)

// Protocol headers [AMQP-2.2], [AMQP-5.3.1].
var (
	headerAMQP = []byte{'A', 'M', 'Q', 'P', 0, 1, 0, 0}
	headerSASL = []byte{'A', 'M', 'Q', 'P', 3, 1, 0, 0}
)

const (
	descSASLMechanisms = 0x40
	descSASLInit       = 0x41
	descSASLOutcome    = 0x44
)

const mechanismPlain Symbol = "PLAIN"

// mechanisms are offered in this order. Only PLAIN checks a secret: claims are sent to $cbs, one
// layer up, as in Azure.
var mechanisms = []Symbol{"MSSBCBS", mechanismPlain, "ANONYMOUS", "EXTERNAL"}

// welcome is the additional data of a successful outcome.
var welcome = []byte("Welcome!")

// negotiate exchanges protocol headers and, when the client asks for it, SASL. plain may be nil.
func negotiate(br *bufio.Reader, w io.Writer, plain func(name, password string) bool) error {
	var got [8]byte
	if _, err := io.ReadFull(br, got[:]); err != nil {
		return fmt.Errorf("read protocol header: %w", err)
	}
	switch string(got[:]) {
	case string(headerAMQP):
	case string(headerSASL):
		if err := negotiateSASL(br, w, plain); err != nil {
			return err
		}
		if _, err := io.ReadFull(br, got[:]); err != nil {
			return fmt.Errorf("read protocol header: %w", err)
		}
		if string(got[:]) != string(headerAMQP) {
			return refuseHeader(w, got, headerAMQP)
		}
	default:
		return refuseHeader(w, got, headerSASL)
	}
	if _, err := w.Write(headerAMQP); err != nil {
		return fmt.Errorf("write protocol header: %w", err)
	}
	return nil
}

// refuseHeader answers an unacceptable header with one we would accept [AMQP-2.2].
func refuseHeader(w io.Writer, got [8]byte, want []byte) error {
	if _, err := w.Write(want); err != nil {
		return fmt.Errorf("write protocol header: %w", err)
	}
	return fmt.Errorf("negotiate protocol: header %q is not supported", got[:])
}

func negotiateSASL(br *bufio.Reader, w io.Writer, plain func(name, password string) bool) error {
	out := append([]byte(nil), headerSASL...)
	at := len(out)
	out = beginFrame(out, frameSASL, 0)
	out, list := beginComposite(out, descSASLMechanisms)
	out, err := AppendAny(out, mechanisms)
	if err != nil {
		return err
	}
	out = endFrame(endCompound(out, list, 1), at)
	if _, err = w.Write(out); err != nil {
		return fmt.Errorf("write sasl mechanisms: %w", err)
	}
	fr, err := readFrame(br, minMaxFrameSize)
	if err != nil {
		return fmt.Errorf("read sasl init: %w", err)
	}
	desc, f, err := readComposite(NewReader(fr.body))
	if err != nil {
		return fmt.Errorf("read sasl init: %w", err)
	}
	if fr.kind != frameSASL || desc != descSASLInit {
		return malformed("want sasl-init, got type %d descriptor %#x", fr.kind, desc)
	}
	mechanism, _ := f.text()
	initial := f.binary()
	if f.err != nil {
		return fmt.Errorf("read sasl init: %w", f.err)
	}
	problem := ""
	switch {
	case !slices.Contains(mechanisms, Symbol(mechanism)):
		problem = fmt.Sprintf("mechanism %q is not offered", mechanism)
	case Symbol(mechanism) == mechanismPlain && !plainly(initial, plain):
		problem = "a name or password is wrong"
	}
	code := uint8(0) // ok
	if problem != "" {
		code = 1 // auth [AMQP-5.3.3.6]
	}
	out = beginFrame(out[:0], frameSASL, 0)
	out, list = beginComposite(out, descSASLOutcome)
	out = AppendUbyte(out, code)
	if problem == "" {
		out = AppendBinary(out, welcome)
	} else {
		out = AppendNull(out)
	}
	out = endFrame(endCompound(out, list, 2), 0)
	if _, err = w.Write(out); err != nil {
		return fmt.Errorf("write sasl outcome: %w", err)
	}
	if problem != "" {
		return fmt.Errorf("negotiate sasl: %s", problem)
	}
	return nil
}

// plainly decodes a message of PLAIN [RFC 4616]: the identity to act for, the name and the
// password.
func plainly(message []byte, plain func(name, password string) bool) bool {
	parts := bytes.Split(message, []byte{0})
	return plain != nil && len(parts) == 3 && plain(string(parts[1]), string(parts[2]))
}
