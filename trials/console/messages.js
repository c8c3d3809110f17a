// The page of messages in a browser: rows, pages, columns, order, copies, downloads, and widths from a phone to a wide screen.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { accessible, open, shoot, sound } from './browser.js';
import { thalweg } from './node.js';

const WIDTHS = [360, 768, 1280];
const LONG = 'long-'.repeat(200);

// Messages with long parts, of which the newest are tombstones, bytes and markers of a formula.
async function fill(plain, topic) {
  thalweg(plain.bootstrap, ['topic', 'create', topic, '--partitions', '3']);
  const lines = Array.from({ length: 140 }, (_, at) => JSON.stringify({ n: at, customer: { id: `c${at % 7}`, name: LONG } }));
  thalweg(plain.bootstrap, ['produce', topic], `${lines.join('\n')}\n`);
  const headers = `trace=${LONG}\nother=1`;
  for (const message of [{ key: LONG, value: LONG, headers }, { key: 'gone', tombstone: 'on' }, { key: '=1+1', value: '/wD+', value_form: 'base64' }]) {
    const answer = await fetch(`${plain.url}/api/v1/topics/${topic}/messages`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ partition: '0', ...message }) });
    assert.equal(answer.status, 200, await answer.text());
  }
}

const ids = (page) => page.locator('#message-rows tbody').evaluateAll((rows) => rows.map((row) => row.id));

// Nothing of a page is beyond its right edge.
async function fits(page, what) {
  const beyond = await page.evaluate(() => {
    const width = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth > width) return 'the page';
    const cells = [...document.querySelectorAll('#message-rows tr:not(.detail) > *, #message-rows tr.detail pre')];
    return cells.find((cell) => cell.getBoundingClientRect().right > width + 1)?.outerHTML.slice(0, 200);
  });
  assert.equal(beyond, undefined, what);
}

// Goes to the address of the first link of this name, as a click does without script.
const follow = async (page, name) => page.goto(new URL(await page.getByRole('link', { name }).first().getAttribute('href'), page.url()).href);

export function messagePages(context) {
  test('messages-are-rows-that-open-in-place', async () => {
    const { browser, plain } = context();
    await fill(plain, 'rows');
    for (const javaScriptEnabled of [true, false]) {
      const page = await open(browser, { javaScriptEnabled });
      await page.goto(`${plain.url}/topics/rows/messages?from=earliest&limit=200&column=customer.id`);
      assert.ok((await ids(page)).length > 3);
      const row = page.locator('#message-rows tbody', { hasText: '"n":' }).first();
      assert.match(await row.locator('.named').innerText(), /^c\d$/);
      const detail = row.locator('.detail');
      assert.ok(!(await detail.isVisible()));
      await row.locator('summary').first().focus();
      await page.keyboard.press('Enter');
      await detail.waitFor();
      assert.match(await detail.locator('pre').first().innerText(), /\{\n  "n": \d+,/);
      assert.match(await detail.innerText(), /\(CreateTime\).*Value: 1\.\d+ KiB/s);
      await page.keyboard.press('Enter');
      await detail.waitFor({ state: 'hidden' });
      if (javaScriptEnabled) {
        await row.locator('.time').click();
        await detail.waitFor();
      }
      const tombstone = page.locator('#message-rows tbody', { hasText: 'gone' });
      assert.match(await tombstone.locator('td.value').innerText(), /tombstone/);
      assert.match(await page.locator('#message-rows tbody', { hasText: '=1+1' }).locator('td.value').innerText(), /^ff 00 fe$/);
      await sound(page);
      await page.context().close();
    }
  });

  test('messages-fit-every-width-and-scheme', async () => {
    const { browser, plain } = context();
    await fill(plain, `widths-${LONG}`.slice(0, 200));
    const topic = `widths-${LONG}`.slice(0, 200);
    for (const colorScheme of ['light', 'dark']) {
      const page = await open(browser, { colorScheme });
      for (const width of WIDTHS) {
        await page.setViewportSize({ width, height: 800 });
        await page.goto(`${plain.url}/topics/${topic}/messages?from=earliest&limit=200&column=customer.name&column=header:trace`);
        await fits(page, `${width} px`);
        await accessible(page, `messages, ${width} px, ${colorScheme}`);
        const row = page.locator('#message-rows tbody', { hasText: 'other' });
        await row.locator('summary').first().focus();
        await page.keyboard.press('Enter');
        await row.locator('.detail').waitFor();
        await fits(page, `${width} px, open`);
        await accessible(page, `messages, open, ${width} px, ${colorScheme}`);
        await page.evaluate(() => scrollTo(0, 0));
        await shoot(page, `messages-${width}-${colorScheme}`);
      }
      await sound(page);
      await page.context().close();
    }
  });

  test('messages-are-paged-without-script', async () => {
    const { browser, plain } = context();
    await fill(plain, 'paged');
    const page = await open(browser, { javaScriptEnabled: false });
    await page.goto(`${plain.url}/topics/paged/messages`);
    const pages = [await ids(page)];
    while (await page.getByRole('link', { name: 'Older' }).count() > 0) {
      await follow(page, 'Older');
      pages.push(await ids(page));
      assert.ok(pages.length < 10);
    }
    const first = [...pages[0]];
    const all = pages.flat();
    assert.equal(all.length, 143);
    assert.equal(new Set(all).size, 143, 'no message twice');
    const back = [pages.at(-1)];
    while (await page.getByRole('link', { name: '‹ Newer' }).count() > 0) {
      await follow(page, '‹ Newer');
      back.push(await ids(page));
      assert.ok(back.length < 10);
    }
    assert.deepEqual(back.flat().sort(), all.sort(), 'the same messages on the way back');
    await follow(page, 'Newest');
    assert.deepEqual(await ids(page), first);
    // The newest message of a key: the key, and Enter.
    await page.getByLabel('Key', { exact: true }).fill('gone');
    await Promise.all([page.waitForURL(/key=gone/), page.keyboard.press('Enter')]);
    assert.equal((await ids(page)).length, 1);
    await sound(page);
    await page.context().close();
  });

  test('messages-have-columns-and-an-order-by-keyboard', async () => {
    const { browser, plain } = context();
    await fill(plain, 'columns');
    const page = await open(browser);
    await page.goto(`${plain.url}/topics/columns/messages?text=customer&limit=20`);
    const before = (await ids(page)).sort();
    await page.getByText('Columns', { exact: true }).focus();
    await page.keyboard.press('Enter');
    await page.getByRole('link', { name: 'Add the column n', exact: true }).focus();
    await page.keyboard.press('Enter');
    const head = page.getByRole('columnheader', { name: 'n', exact: false }).locator('a[title=n]');
    await head.focus();
    await page.keyboard.press('Enter');
    await page.locator('th[aria-sort=ascending]').waitFor();
    const numbers = await page.locator('td.named').allInnerTexts();
    assert.deepEqual(numbers, [...numbers].sort((a, b) => a - b));
    assert.deepEqual((await ids(page)).sort(), before, 'the same messages');
    const restored = await open(browser);
    await restored.goto(page.url());
    assert.deepEqual(await ids(restored), await ids(page), 'the address has the whole view');
    await restored.context().close();
    await page.getByRole('link', { name: 'Remove the column n' }).click();
    assert.equal(await page.locator('td.named').count(), 0);
    await sound(page);
    await page.context().close();
  });

  test('messages-are-copied-downloaded-and-sent-again', async () => {
    const { browser, plain } = context();
    await fill(plain, 'copied');
    const page = await open(browser, { permissions: ['clipboard-read', 'clipboard-write'], acceptDownloads: true });
    await page.goto(`${plain.url}/topics/copied/messages?key=${encodeURIComponent('=1+1')}`);
    const row = page.locator('#message-rows tbody').first();
    await row.locator('summary').first().click();
    const copied = async (name) => {
      await row.getByRole('link', { name }).click();
      await page.locator('#copied', { hasText: 'Copied.' }).waitFor({ state: 'attached' });
      const text = await page.evaluate(() => navigator.clipboard.readText());
      await page.waitForFunction(() => document.getElementById('copied').textContent === '');
      return text;
    };
    assert.equal(await copied('Copy the key'), '=1+1');
    assert.equal(await copied('Copy the value'), '/wD+');
    assert.deepEqual(JSON.parse(await copied('Copy as a JSON line')).value, { base64: '/wD+' });
    const download = async (name) => {
      const [file] = await Promise.all([page.waitForEvent('download'), page.getByRole('link', { name }).click()]);
      return readFileSync(await file.path(), 'utf8');
    };
    const csv = await download('Download: This page, as CSV');
    assert.match(csv, /,"'=1\+1",text,\/wD\+,base64,/);
    assert.equal(JSON.parse(await download('Download: All that is found, as JSON lines')).key, '=1+1');
    await row.getByRole('link', { name: 'Send again' }).click();
    assert.equal(await page.getByLabel('Key of the message').inputValue(), '=1+1');
    assert.equal(await page.locator('textarea[name=value]').inputValue(), '/wD+');
    await accessible(page, 'send again');
    await shoot(page, 'send-again');
    await page.getByLabel('Form of the value').selectOption('text');
    await page.locator('textarea[name=value]').fill('changed');
    await page.getByRole('button', { name: 'Send' }).click();
    await page.getByRole('status').filter({ hasText: 'is in partition 0' }).waitFor();
    assert.match(await page.locator('#message-rows tbody').first().innerText(), /changed/);
    await sound(page);
    await page.context().close();
  });
}
