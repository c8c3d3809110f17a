package franzgo

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// connection is how clients connect: compat/harness/security.py documents the variables.
func connection() ([]kgo.Opt, error) {
	options := []kgo.Opt{kgo.SeedBrokers(strings.Split(os.Getenv("BOOTSTRAP"), ",")...)}
	if file := os.Getenv("SECURITY_CA"); file != "" {
		config, err := tlsConfig(file, os.Getenv("SECURITY_CERTIFICATE"))
		if err != nil {
			return nil, err
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	if mechanism := mechanism(os.Getenv("SECURITY_MECHANISM")); mechanism != nil {
		options = append(options, kgo.SASL(mechanism))
	}
	return options, nil
}

func tlsConfig(ca, certificate string) (*tls.Config, error) {
	text, err := os.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	if !config.RootCAs.AppendCertsFromPEM(text) {
		return nil, errors.New("no certificate in " + ca)
	}
	if certificate != "" {
		pair, err := tls.LoadX509KeyPair(certificate, certificate)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

func mechanism(name string) sasl.Mechanism {
	user, password := os.Getenv("SECURITY_USER"), os.Getenv("SECURITY_PASSWORD")
	auth := scram.Auth{User: user, Pass: password, IsToken: os.Getenv("SECURITY_TOKEN_AUTH") != ""}
	switch name {
	case "PLAIN":
		return plain.Auth{User: user, Pass: password}.AsMechanism()
	case "SCRAM-SHA-256":
		return auth.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return auth.AsSha512Mechanism()
	case "OAUTHBEARER":
		return oauth.Oauth(func(context.Context) (oauth.Auth, error) {
			return oauth.Auth{Token: os.Getenv("SECURITY_TOKEN")}, nil
		})
	}
	return nil
}
