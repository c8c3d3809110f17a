// A browser that fails a test for every error on its console, and checks each page for accessibility.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { mkdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const screenshots = join(dirname(fileURLToPath(import.meta.url)), 'screenshots');
mkdirSync(screenshots, { recursive: true });

export const launch = () =>
  chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu'] });

// A page whose errors are gathered.
export async function open(browser, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ignoreHTTPSErrors: true, ...options });
  const page = await context.newPage();
  page.problems = [];
  page.expected = [];
  page.on('console', (message) => {
    const text = `${message.type()}: ${message.text()} (${message.location().url})`;
    if (['error', 'warning'].includes(message.type()) && !page.expected.some((words) => words.test(text))) page.problems.push(text);
  });
  page.on('pageerror', (error) => page.problems.push(`error: ${error}`));
  page.on('dialog', (dialog) => { page.problems.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
  page.setDefaultTimeout(15_000);
  return page;
}

export async function sound(page) {
  assert.deepEqual(page.problems, [], 'errors on the console of the browser');
}

// Everything that axe knows of WCAG 2.2 AA and best practice.
export async function accessible(page, what) {
  await page.evaluate(axe);
  const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
  const violations = found.violations.map((one) => `${what}: ${one.id}: ${one.help}: ${one.nodes.slice(0, 3).map((node) => node.html).join(' ')}`);
  assert.deepEqual(violations, []);
}

export async function shoot(page, name) {
  await page.screenshot({ path: join(screenshots, `${name}.png`), fullPage: false });
}
