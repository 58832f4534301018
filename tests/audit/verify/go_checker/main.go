// Checks a tlog-proof of a Joulie log with the packages of the Go checksum database.
//
//	checker PROOF LOGKEY [WITNESSKEY...]
package main

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// cosigner verifies cosignature/v1: sumdb/note knows plain Ed25519 only.
type cosigner struct {
	name string
	hash uint32
	key  ed25519.PublicKey
}

func (c cosigner) Name() string    { return c.name }
func (c cosigner) KeyHash() uint32 { return c.hash }
func (c cosigner) Verify(msg, sig []byte) bool {
	if len(sig) != 8+ed25519.SignatureSize {
		return false
	}
	head := fmt.Sprintf("cosignature/v1\ntime %d\n", binary.BigEndian.Uint64(sig))
	return ed25519.Verify(c.key, append([]byte(head), msg...), sig[8:])
}

func cosignerOf(vkey string) (note.Verifier, error) {
	parts := strings.SplitN(vkey, "+", 3)
	if len(parts) != 3 {
		return nil, errors.New("not a verifier key")
	}
	key, err := base64.StdEncoding.DecodeString(parts[2])
	if err != nil || len(key) != 1+ed25519.PublicKeySize || key[0] != 4 {
		return nil, errors.New("not the key of a witness")
	}
	sum := sha256.Sum256(append([]byte(parts[0]+"\n"), key...))
	if hex.EncodeToString(sum[:4]) != parts[1] {
		return nil, errors.New("the id does not belong to the key")
	}
	return cosigner{parts[0], binary.BigEndian.Uint32(sum[:4]), key[1:]}, nil
}

func check(file, logKey string, witnesses []string) (string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	head, checkpoint, found := strings.Cut(string(content), "\n\n")
	lines := strings.Split(head, "\n")
	if !found || len(lines) < 3 || lines[0] != "c2sp.org/tlog-proof@v1" {
		return "", errors.New("not a tlog-proof")
	}
	extra, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(lines[1], "extra "))
	if err != nil {
		return "", err
	}
	index, err := strconv.ParseInt(strings.TrimPrefix(lines[2], "index "), 10, 64)
	if err != nil {
		return "", err
	}
	var proof tlog.RecordProof
	for _, line := range lines[3:] {
		hash, err := tlog.ParseHash(line)
		if err != nil {
			return "", err
		}
		proof = append(proof, hash)
	}
	log, err := note.NewVerifier(logKey)
	if err != nil {
		return "", err
	}
	verifiers := []note.Verifier{log}
	for _, vkey := range witnesses {
		witness, err := cosignerOf(vkey)
		if err != nil {
			return "", err
		}
		verifiers = append(verifiers, witness)
	}
	opened, err := note.Open([]byte(checkpoint), note.VerifierList(verifiers...))
	if err != nil {
		return "", err
	}
	text := strings.Split(opened.Text, "\n")
	size, err := strconv.ParseInt(text[1], 10, 64)
	if err != nil || text[0] != log.Name() {
		return "", errors.New("not a checkpoint of this log")
	}
	root, err := tlog.ParseHash(text[2])
	if err != nil {
		return "", err
	}
	record := sha256.Sum256(extra)
	if err := tlog.CheckRecord(proof, size, root, index, tlog.RecordHash(record[:])); err != nil {
		return "", err
	}
	return fmt.Sprintf("index %d of %d, %d signatures", index, size, len(opened.Sigs)), nil
}

func main() {
	found, err := check(os.Args[1], os.Args[2], os.Args[3:])
	if err != nil {
		fmt.Println("NOT proved:", err)
		os.Exit(1)
	}
	fmt.Println(found)
}
