// Daily tasks of an operator, whose clicks are those of the table in the docs' source, and tables of groups, whose lag is in sight at
// every width.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { open, shoot, sound } from './browser.js';
import { THALWEG, node, remove, thalweg } from './node.js';

const WIDTHS = [360, 768, 1280];
const LONG = 'a-long-name-of-a-topic.'.repeat(5);
const MEMBER = 'a-client';

// The clicks of Thalweg's column by task, from the comment in the page about the console.
function documented() {
  const lines = readFileSync(join(process.env.ROOT, 'docs', 'console.md'), 'utf8').split('\n');
  const rows = lines.slice(lines.findIndex((line) => line.startsWith('| task | Thalweg |')) + 2);
  const cells = rows.slice(0, rows.findIndex((row) => !row.startsWith('|'))).map((row) => row.split('|').map((cell) => cell.trim()));
  return Object.fromEntries(cells.map((cell) => [cell[1], Number.parseInt(cell[2], 10)]));
}

// A page whose clicks are counted. Typing is no click, Enter and the choice from a list are one.
function counted(page) {
  let clicks = 0;
  const locate = (role, name) => page.getByRole(role, { name, exact: true }).first();
  return {
    page,
    link: async (name) => { clicks++; await locate('link', name).click(); },
    button: async (name) => { clicks++; await locate('button', name).click(); },
    choose: async (name, value) => { clicks++; await page.locator(`select[name=${name}]`).selectOption(value); },
    enter: async () => { clicks++; await page.keyboard.press('Enter'); },
    type: (name, text) => page.getByLabel(name, { exact: true }).fill(text),
    said: (words) => page.getByRole('status').filter({ hasText: words }).waitFor(),
    clicks: () => clicks,
  };
}

// Each task begins on the first page, except the next page of messages, and ends where its result is in sight.
const TASKS = {
  'newest message by key': async (at) => {
    await at.link('Topics');
    await at.link('Messages of orders');
    await at.type('Key', 'k7');
    await at.enter();
    await at.page.waitForURL(/key=k7/);
    assert.match(await at.page.locator('#message-rows tbody').first().innerText(), /k7/);
  },
  'next page of messages': async (at) => {
    await at.page.goto(new URL('/topics/orders/messages', at.page.url()).href);
    const first = await at.page.locator('#message-rows tbody').first().getAttribute('id');
    await at.link('Older ›');
    await at.page.locator(`#message-rows tbody:not([id="${first}"])`).first().waitFor();
  },
  'groups that read a topic': async (at) => {
    await at.link('Topics');
    const row = at.page.locator('#topics tbody tr', { hasText: 'orders' });
    for (const group of ['reading', 'idle']) await row.getByRole('link', { name: group, exact: true }).waitFor();
  },
  'owner of a lagging partition': async (at) => {
    await at.link('Groups');
    await at.link('reading');
    await at.page.getByRole('region', { name: 'Partitions' }).getByText(MEMBER).first().waitFor();
  },
  'a user with rights': async (at) => {
    await at.link('Users');
    await at.link('Create a user with rights');
    await at.type('User', 'ann');
    await at.choose('rights', 'producer');
    await at.type('Topic', 'orders');
    await at.button('Preview');
    await at.button('Create the user');
    await at.said('The user ann was made, with its ACLs');
  },
  'reset offsets': async (at) => {
    await at.link('Groups');
    await at.link('idle');
    await at.choose('to', 'latest');
    await at.button('Show what would change');
    await at.button('Reset these offsets');
    await at.said('were reset');
  },
  'purge a topic': async (at) => {
    await at.link('Topics');
    await at.link('scratch');
    await at.link('Delete all messages…');
    await at.page.locator('input[name=confirm]').fill('scratch');
    await at.button('Delete all messages');
    await at.said('deleted');
  },
  'download messages': async (at) => {
    await at.link('Topics');
    await at.link('Messages of orders');
    const [file] = await Promise.all([at.page.waitForEvent('download'), at.link('Download: All that is found, as JSON lines')]);
    // The browser itself may refuse to store a file of a node with a certificate of its own making.
    const answer = await at.page.request.get(file.url());
    assert.match(await answer.text(), /"key":"k7"/);
  },
};

export function taskPages(context) {
  test('clicks-are-those-of-the-table', async () => {
    const { browser } = context();
    const table = documented();
    assert.deepEqual(Object.keys(TASKS), Object.keys(table), 'the tasks of the table');
    const secured = await node(['group.initial.rebalance.delay.ms=0'], ['--secure=DIRECTORY/security']);
    let member;
    try {
      const config = join(secured.directory, 'security', 'client.properties');
      const tool = (line, input) => thalweg(secured.bootstrap, [...line, '--command-config', config], input);
      const lines = Array.from({ length: 200 }, (_, at) => `k${at % 20}:${at}`).join('\n');
      for (const topic of ['orders', 'scratch']) {
        tool(['topic', 'create', topic, '--partitions', '3']);
        tool(['produce', topic, '--key-separator', ':'], `${lines}\n`);
      }
      tool(['consume', 'orders', '--group', 'idle', '--from-beginning', '--max-messages', '20']);
      const reading = ['consume', 'orders', '--group', 'reading', '--set', `client.id=${MEMBER}`];
      member = spawn(THALWEG, [...reading, '--bootstrap-server', secured.bootstrap, '--command-config', config], { stdio: 'ignore' });
      const page = await open(browser, { acceptDownloads: true });
      await page.goto(`${secured.url}/`);
      await page.getByLabel('User').fill('admin');
      await page.getByLabel('Password').fill(/password="([^"]+)"/.exec(readFileSync(config, 'utf8'))[1]);
      await page.getByRole('button', { name: 'Log in' }).click();
      for (let tries = 0; tries < 60; tries++) {
        await page.goto(`${secured.url}/group?id=reading`);
        if (await page.getByRole('region', { name: 'Partitions' }).getByText(MEMBER).count() > 0) break;
        await page.waitForTimeout(250);
      }
      const clicks = {};
      for (const [task, perform] of Object.entries(TASKS)) {
        await page.goto(`${secured.url}/`);
        const at = counted(page);
        await perform(at);
        clicks[task] = at.clicks();
      }
      assert.deepEqual(clicks, table);
      await sound(page);
      await page.context().close();
    } finally {
      member?.kill('SIGKILL');
      await remove(secured);
    }
  });

  test('lag-is-in-sight-at-every-width', async () => {
    const { browser, plain } = context();
    const group = `a-group-of-${LONG}`;
    thalweg(plain.bootstrap, ['topic', 'create', LONG]);
    thalweg(plain.bootstrap, ['produce', LONG], 'one\ntwo\nthree\n');
    thalweg(plain.bootstrap, ['consume', LONG, '--group', group, '--from-beginning', '--max-messages', '1']);
    const page = await open(browser);
    for (const width of WIDTHS) {
      await page.setViewportSize({ width, height: 800 });
      for (const path of ['/groups', `/group?id=${group}`, '/group?id=billing', `/topics/${LONG}/groups`, '/topics']) {
        await page.goto(plain.url + path);
        const cells = await page.locator('th.lag, td.lag').evaluateAll((all) => all.map((cell) => {
          cell.scrollIntoView({ block: 'center', inline: 'nearest' });
          cell.closest('.table').scrollLeft = 0;
          const box = cell.getBoundingClientRect();
          const top = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
          return { right: box.right <= document.documentElement.clientWidth, left: box.left >= 0, top: cell.contains(top) };
        }));
        assert.ok(cells.length > 1, path);
        for (const cell of cells) assert.deepEqual(cell, { right: true, left: true, top: true }, `${path} at ${width} px`);
      }
      await page.goto(`${plain.url}/group?id=${group}`);
      await page.getByRole('region', { name: 'Partitions' }).scrollIntoViewIfNeeded();
      await shoot(page, `lag-${width}`);
    }
    await sound(page);
    await page.context().close();
  });
}
