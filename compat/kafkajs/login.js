// How clients connect: compat/harness/security.py documents the variables.
import { readFileSync } from 'node:fs';

const env = process.env;

function tls() {
  if (!env.SECURITY_CA) return undefined;
  const pair = env.SECURITY_CERTIFICATE ? readFileSync(env.SECURITY_CERTIFICATE) : undefined;
  return { ca: [readFileSync(env.SECURITY_CA)], cert: pair, key: pair };
}

function sasl() {
  if (!env.SECURITY_MECHANISM) return undefined;
  const mechanism = env.SECURITY_MECHANISM.toLowerCase();
  if (mechanism === 'oauthbearer') {
    return { mechanism, oauthBearerProvider: async () => ({ value: env.SECURITY_TOKEN }) };
  }
  return { mechanism, username: env.SECURITY_USER, password: env.SECURITY_PASSWORD };
}

export const connection = { brokers: env.BOOTSTRAP.split(','), ssl: tls(), sasl: sasl() };
