package saramasuite

import (
	"crypto/tls"
	"crypto/x509"
	"os"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

// secure sets how clients connect: compat/harness/security.py documents the variables.
func secure(config *sarama.Config) error {
	if file := os.Getenv("SECURITY_CA"); file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		config.Net.TLS.Enable, config.Net.TLS.Config = true, &tls.Config{RootCAs: x509.NewCertPool()}
		config.Net.TLS.Config.RootCAs.AppendCertsFromPEM(text)
	}
	if file := os.Getenv("SECURITY_CERTIFICATE"); file != "" {
		pair, err := tls.LoadX509KeyPair(file, file)
		if err != nil {
			return err
		}
		config.Net.TLS.Config.Certificates = []tls.Certificate{pair}
	}
	mechanism := os.Getenv("SECURITY_MECHANISM")
	if mechanism == "" {
		return nil
	}
	config.Net.SASL.Enable, config.Net.SASL.Mechanism = true, sarama.SASLMechanism(mechanism)
	config.Net.SASL.User, config.Net.SASL.Password = os.Getenv("SECURITY_USER"), os.Getenv("SECURITY_PASSWORD")
	switch mechanism {
	case sarama.SASLTypeSCRAMSHA256:
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &conversation{hash: scram.SHA256} }
	case sarama.SASLTypeSCRAMSHA512:
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &conversation{hash: scram.SHA512} }
	case sarama.SASLTypeOAuth:
		config.Net.SASL.TokenProvider = provider{}
	}
	return nil
}

// conversation is SCRAM, which sarama leaves to its users.
type conversation struct {
	hash scram.HashGeneratorFcn
	*scram.ClientConversation
}

func (c *conversation) Begin(user, password, authorization string) error {
	client, err := c.hash.NewClient(user, password, authorization)
	if err == nil {
		c.ClientConversation = client.NewConversation()
	}
	return err
}

type provider struct{}

func (provider) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: os.Getenv("SECURITY_TOKEN")}, nil
}
