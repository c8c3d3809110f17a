// The console in a real browser: every page, every action, without script, with hostile contents, with a login, over other clusters.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { accessible, launch, open, shoot, sound } from './browser.js';
import { messagePages } from './messages.js';
import { consoleOf, node, remove, thalweg } from './node.js';
import { taskPages } from './tasks.js';

const HOSTILE = `"><script>alert(1)</script><img src=x onerror=alert(2)>'`;
// Another cluster than Thalweg's own is reached by a console of its own, which hosts no streams.
const OTHER = process.env.TARGET === 'apache-kafka';
const NO_STREAMS = OTHER && 'Apache Kafka hosts no streams';
const NO_CLIENTS = OTHER && 'a console beside no broker knows no connections';
const PAGES = [
  ['overview', '/'], ['topics', '/topics'], ['topic', '/topics/orders'], ['configuration', '/topics/orders/configuration'],
  ['edit', '/topics/orders/configuration?edit=retention.ms'], ['producers', '/topics/orders/producers'], ['create-topic', '/create-topic'],
  ['groups', '/groups'], ['group', '/group?id=billing'], ['reset', '/group/reset?id=billing&to=earliest'],
  ['messages', '/topics/orders/messages'], ['search', '/topics/orders/messages?from=earliest&expression=payload.total+>+850'],
  ['transactions', '/transactions'], ['hanging', '/hanging-transactions?minutes=0'], ['replicas', '/topics/orders/replicas?plan=on&partitions=0'],
  ['feature', '/quorum?feature=metadata.version'], ['streams', '/streams'], ['create-stream', '/create-stream'], ['stream', '/streams/ticks'],
  ['stream-tap', '/streams/ticks/taps/filter'], ['lab', '/lab'],
  ['brokers', '/brokers'], ['broker', '/brokers/1'], ['all-brokers', '/brokers/all'], ['quorum', '/quorum'], ['users', '/users'],
  ['quotas', '/quotas'], ['topic-groups', '/topics/orders/groups'], ['clients', '/clients'],
  ['purge', '/topics/orders/purge'], ['create-user', '/create-user?name=ann&rights=both&topic=orders'],
];

let browser, plain, results;

// A cluster with something to see.
function seed(bootstrap) {
  for (const [topic, partitions] of [['orders', 6], ['payments', 3], ['clicks', 12], ['audit-trail', 1]]) {
    thalweg(bootstrap, ['topic', 'create', topic, '--partitions', String(partitions)]);
  }
  const lines = Array.from({ length: 500 }, (_, at) => JSON.stringify({ order: at, total: (at * 37) % 900 })).join('\n');
  thalweg(bootstrap, ['produce', 'orders'], `${lines}\n`);
  thalweg(bootstrap, ['produce', 'payments'], `${lines}\n`);
  for (const group of ['billing', HOSTILE, '..', 'shipping']) {
    thalweg(bootstrap, ['consume', 'orders', '--group', group, '--from-beginning', '--max-messages', '200']);
  }
}

async function ask(url, method, path, headers = {}, body = undefined) {
  return fetch(new URL(path, url), { method, headers, body, redirect: 'manual' });
}

async function post(url, path, form) {
  const headers = { 'content-type': 'application/x-www-form-urlencoded', origin: new URL(url).origin };
  return ask(url, 'POST', path, headers, new URLSearchParams(form).toString());
}

// Two tests at a time: the browser waits for the most part. Messages and tasks follow the pages, in which their long names would be.
describe('console', { concurrency: 2 }, () => {
  before(async () => {
    browser = await launch();
    results = mkdtempSync(join(tmpdir(), 'console-lab-'));
    if (OTHER) {
      plain = await consoleOf(process.env.BOOTSTRAP, ['--lab-dir', results, '--mask', 'payments: order']);
      plain.bootstrap = process.env.BOOTSTRAP;
      seed(plain.bootstrap);
      return;
    }
    plain = await node(['thalweg.console.masking=payments: order', 'streams.enabled=true', `thalweg.console.lab.directory=${results}`, 'group.initial.rebalance.delay.ms=0', 'offsets.topic.num.partitions=4']);
    seed(plain.bootstrap);
    for (let tries = 0; tries < 100; tries++) {
      const answer = await ask(plain.url, 'POST', '/api/v1/streams', { 'content-type': 'application/json' },
        JSON.stringify({ name: 'ticks', definition: 'time --fixedDelay=10ms | filter --expression="true" | null', deploy: true }));
      if (answer.status === 201) break;
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
  });

  after(async () => {
    await browser?.close();
    if (plain) await (OTHER ? plain.stop() : remove(plain));
    if (results) rmSync(results, { recursive: true, force: true });
  });

  describe('every page', { concurrency: 1 }, () => {
    for (const [name, path] of PAGES) {
      test(`page-${name}`, { skip: (/stream/.test(name) && NO_STREAMS) || (name === 'clients' && NO_CLIENTS) }, async () => {
        const page = await open(browser, { colorScheme: 'light' });
        const answer = await page.goto(plain.url + path);
        assert.equal(answer.status(), 200, await page.locator('main').innerText());
        assert.ok((await page.locator('h1').innerText()).length > 0);
        if (['topics', 'stream', 'streams'].includes(name)) await page.waitForTimeout(5500);
        for (let round = 0; name === 'overview' && round < 5; round++) {
          thalweg(plain.bootstrap, ['produce', 'clicks'], 'a click\n'.repeat(3000 + 2000 * (round % 3)));
          await page.waitForTimeout(2000);
        }
        await shoot(page, `${name}-light`);
        await accessible(page, name);
        await page.emulateMedia({ colorScheme: 'dark' });
        await shoot(page, `${name}-dark`);
        await accessible(page, `${name}, dark`);
        await page.setViewportSize({ width: 390, height: 844 });
        await shoot(page, `${name}-phone`);
        const overflows = await page.evaluate(() => document.documentElement.scrollWidth > document.documentElement.clientWidth);
        assert.ok(!overflows, 'the page is wider than a phone');
        await sound(page);
        await page.context().close();
      });
    }
  });

  describe('every action', { concurrency: 1 }, () => {
    test('readable-without-script', async () => {
      const page = await open(browser, { javaScriptEnabled: false });
      for (const [path, words] of [
        ['/', 'Brokers'], ['/topics', 'orders'], ['/topics/orders', 'Leader'], ['/topics/orders/configuration', 'retention.ms'],
        ['/topics/orders/groups', 'billing'], ['/groups', 'billing'], ['/group?id=billing', 'orders'], ['/brokers/1', 'log.dirs'],
        ['/quorum', 'metadata.version'], ...(OTHER ? [] : [['/streams/ticks', 'filter'], ['/clients', 'Principal']]),
      ]) {
        await page.goto(plain.url + path);
        assert.match(await page.locator('main').innerText(), new RegExp(words), path);
      }
      // Where readings are kept for some seconds, their time is on the page.
      for (const path of ['/', '/topics', '/groups', '/brokers', '/topics/orders/groups']) {
        await page.goto(plain.url + path);
        assert.match(await page.locator('main').innerText(), /Read at \d\d:\d\d:\d\d UTC/, path);
      }
      await page.context().close();
    });

    test('topic-is-created-configured-grown-and-deleted', async () => {
      const page = await open(browser);
      await page.goto(`${plain.url}/topics`);
      await page.getByRole('link', { name: 'Create a topic' }).click();
      await page.getByLabel('Name').fill('from.the-browser');
      await page.getByLabel('Partitions').fill('3');
      await page.getByLabel('Configuration').fill('retention.ms=60000\nnot a property');
      page.expected.push(/400/);
      await page.getByRole('button', { name: 'Create' }).click();
      assert.match(await page.getByRole('alert').innerText(), /not a property.*PROPERTY=VALUE/);
      assert.equal(await page.getByLabel('Name').inputValue(), 'from.the-browser', 'what was filled in stays');
      await page.getByLabel('Configuration').fill('retention.ms=60000');
      await page.getByRole('button', { name: 'Create' }).click();
      await page.getByRole('status').filter({ hasText: 'was created' }).waitFor();
      await page.getByRole('navigation', { name: 'Topic' }).getByRole('link', { name: 'Configuration' }).click();
      await page.getByRole('link', { name: 'Change retention.ms' }).click();
      await page.getByLabel('New value of retention.ms').fill('120000');
      await page.getByRole('button', { name: 'Set', exact: true }).click();
      await page.getByRole('status').filter({ hasText: 'retention.ms was changed' }).waitFor();
      assert.match(await page.locator('tr', { hasText: 'retention.ms' }).filter({ hasText: '120000' }).innerText(), /this topic/);
      await page.getByRole('link', { name: 'Change retention.ms' }).click();
      await page.getByRole('button', { name: 'Reset to the default' }).click();
      await page.getByRole('status').filter({ hasText: 'default again' }).waitFor();
      await page.goto(`${plain.url}/topics/from.the-browser`);
      await page.getByText('Add partitions').click();
      await page.getByLabel('Partitions in all').fill('5');
      await page.getByRole('button', { name: 'Add', exact: true }).click();
      await page.getByRole('status').filter({ hasText: 'has 5 partitions' }).waitFor();
      await page.getByText('Delete this topic').click();
      await page.getByLabel('Type the topic').fill('from.the-browsers');
      assert.ok(await page.getByRole('button', { name: 'Delete' }).isDisabled());
      await page.getByLabel('Type the topic').fill('from.the-browser');
      await page.getByRole('button', { name: 'Delete' }).click();
      await page.getByRole('status').filter({ hasText: 'was deleted' }).waitFor();
      await sound(page);
      await page.context().close();
      const answer = await post(plain.url, '/topics/orders/delete', { confirm: 'order' });
      assert.equal(answer.status, 303);
      assert.equal((await ask(plain.url, 'GET', '/topics/orders')).status, 200, 'a wrong name deletes nothing, without script too');
    });

    test('group-is-reset-after-a-dry-run-and-deleted', async () => {
      const page = await open(browser);
      await page.goto(`${plain.url}/groups`);
      await page.getByRole('link', { name: 'shipping' }).click();
      await page.locator('select[name=to]').selectOption('earliest');
      await page.getByRole('button', { name: 'Show what would change' }).click();
      await page.getByText('Nothing has changed yet').waitFor();
      await page.getByRole('button', { name: 'Reset these offsets' }).click();
      await page.getByRole('status').filter({ hasText: 'were reset' }).waitFor();
      const answer = await (await ask(plain.url, 'GET', '/api/v1/groups/shipping')).json();
      assert.ok(answer.offsets.length > 0 && answer.offsets.every((offset) => offset.offset === 0), JSON.stringify(answer.offsets));
      await page.getByRole('link', { name: 'Forget the offset of orders, partition 0' }).click();
      await page.getByLabel('Type orders-0').fill('orders');
      assert.ok(await page.getByRole('button', { name: 'Forget this offset' }).isDisabled());
      await page.getByLabel('Type orders-0').fill('orders-0');
      await accessible(page, 'forget');
      await page.getByRole('button', { name: 'Forget this offset' }).click();
      await page.getByRole('status').filter({ hasText: 'no offset in orders-0' }).waitFor();
      await page.getByText('thalweg group reset --topic orders:0 --to-offset 0 --execute shipping').waitFor();
      await page.getByText('Delete this group').click();
      await page.getByLabel('Type the group').fill('shipping');
      await page.getByRole('button', { name: 'Delete' }).click();
      await page.getByRole('status').filter({ hasText: 'was deleted' }).waitFor();
      await sound(page);
      await page.context().close();
    });

    test('hostile-names-are-text', async () => {
      const page = await open(browser);
      await page.goto(`${plain.url}/groups`);
      await page.getByRole('link', { name: HOSTILE }).click();
      assert.equal(await page.locator('h1').innerText(), HOSTILE);
      assert.equal(await page.locator('main script, main img').count(), 0);
      await page.goto(`${plain.url}/groups`);
      await page.getByRole('link', { name: '..', exact: true }).click();
      assert.equal(await page.locator('h1').innerText(), '..');
      thalweg(plain.bootstrap, ['topic', 'create', 'hostile']);
      for (const value of [HOSTILE, `{"x": "${'<script>alert(3)</script>'}"}`, '\u0000\u001b[31m\u202e']) {
        const answer = await post(plain.url, '/topics/hostile/messages', { key: HOSTILE, value, headers: `${HOSTILE}=${HOSTILE}` });
        assert.equal(answer.status, 303);
      }
      for (const shape of ['auto', 'json', 'text', 'hex']) {
        await page.goto(`${plain.url}/topics/hostile/messages?shape=${shape}`);
        await page.locator('#m-0-2').waitFor();
        assert.equal(await page.locator('main script, main img').count(), 0, shape);
      }
      await shoot(page, 'messages-hostile');
      for (const path of ['/topics?filter=', '/group?id=', '/topics/', '/acls/rights?principal=', '/transaction?id=', '/brokers/', '/nowhere/']) {
        page.expected.push(/status of (4|5)\d\d/);
        await page.goto(plain.url + path + encodeURIComponent(HOSTILE));
        assert.equal(await page.locator('main script, main img').count(), 0, path);
      }
      await sound(page);
      await page.context().close();
    });

    test('new-messages-appear-and-hidden-parts-do-not', async () => {
      const page = await open(browser);
      await page.goto(`${plain.url}/topics/payments/messages`);
      await page.locator('#tail [role=status]').filter({ hasText: 'New messages appear here' }).waitFor();
      assert.equal(await page.locator('[role=status] button, #tail[role=status]').count(), 0, 'only the state is read aloud');
      thalweg(plain.bootstrap, ['produce', 'payments'], '{"order": 4711, "note": "<img src=x onerror=alert(1)>"}\n');
      const added = page.locator('#message-rows tbody', { hasText: 'onerror' });
      await added.first().waitFor();
      assert.match(await added.first().innerText(), /"\*\*\*"/);
      assert.doesNotMatch(await added.first().innerText(), /4711/);
      assert.equal(await page.locator('main script, main img').count(), 0);
      assert.equal(await added.count(), 1, 'a message is shown once');
      await page.getByRole('button', { name: 'Pause' }).click();
      thalweg(plain.bootstrap, ['produce', 'payments'], '{"note": "while it rests"}\n');
      await page.getByRole('button', { name: 'Continue' }).click();
      await page.locator('#message-rows tbody', { hasText: 'while it rests' }).first().waitFor();
      await accessible(page, 'tail');
      await page.goto(`${plain.url}/topics/payments/messages?from=earliest&text=4711`);
      await page.getByText(/^0 messages of/).waitFor();
      await sound(page);
      await page.context().close();
    });

    test('replicas-leaders-and-levels-are-changed-with-confirmation', async () => {
      const page = await open(browser);
      await page.goto(`${plain.url}/topics/clicks`);
      await page.getByRole('navigation', { name: 'Topic' }).getByRole('link', { name: 'Moves and elections' }).click();
      await page.getByLabel('Or exactly these brokers').fill('1');
      await page.getByRole('button', { name: 'Show the plan' }).click();
      await page.getByRole('status').filter({ hasText: 'Nothing moves' }).waitFor();
      await page.getByLabel('Or exactly these brokers').fill('');
      await page.getByLabel('Only on brokers').fill('7');
      await page.getByRole('button', { name: 'Show the plan' }).click();
      await page.getByRole('alert').filter({ hasText: 'Broker 7 does not run' }).waitFor();
      await page.getByRole('button', { name: 'Elect preferred leaders' }).click();
      await page.getByRole('status').filter({ hasText: 'needs an election' }).waitFor();
      await page.getByText('Elect leaders that are not in sync').click();
      assert.ok(await page.getByRole('button', { name: 'Elect unclean leaders' }).isDisabled());
      await page.goto(`${plain.url}/quorum`);
      await page.getByRole('link', { name: 'Change transaction.version' }).click();
      const level = Number(await page.getByLabel('New level').inputValue());
      await page.getByLabel('New level').fill(String(level - 1));
      await page.getByLabel('Allow').selectOption('downgrade');
      await page.getByRole('button', { name: 'Check' }).click();
      await page.getByRole('status').filter({ hasText: 'could be set' }).waitFor();
      await page.getByLabel('New level').fill(String(level - 1));
      await page.getByLabel('Allow').selectOption('downgrade');
      await page.getByRole('button', { name: 'Set the level' }).click();
      await page.getByRole('alert').filter({ hasText: 'Nothing was set' }).waitFor();
      await sound(page);
      await page.context().close();
    });

    test('live-parts-move-without-reload', async () => {
      const page = await open(browser);
      await page.goto(`${plain.url}/topics/payments`);
      const end = () => page.locator('#partitions .figure', { hasText: 'Records' }).locator('dd').innerText();
      const first = await end();
      thalweg(plain.bootstrap, ['produce', 'payments'], 'one more\n'.repeat(7));
      await page.waitForFunction((before) => ![...document.querySelectorAll('#partitions dd')].some((figure) => figure.innerText === before), first);
      await sound(page);
      await page.context().close();
    });

    test('stream-is-written-with-help-deployed-and-destroyed', { skip: NO_STREAMS }, async () => {
      const page = await open(browser);
      await page.goto(`${plain.url}/create-stream`);
      await page.getByLabel('Name').fill('from-browser');
      const line = page.getByLabel('Line');
      await line.fill('time | fliter | log');
      await page.locator('#check-output.bad').waitFor();
      assert.match(await page.locator('#check-output').innerText(), /filter/);
      await shoot(page, 'stream-wrong');
      await line.fill('time | lo');
      await page.locator('#suggestions').getByRole('button', { name: 'log', exact: true }).click();
      assert.equal(await line.inputValue(), 'time | log');
      await page.locator('#check-output.good').waitFor();
      await page.getByRole('button', { name: 'Create' }).click();
      await page.getByRole('status').filter({ hasText: 'was created' }).waitFor();
      await page.getByRole('button', { name: 'Undeploy' }).click();
      await page.getByRole('status').filter({ hasText: 'undeploy is done' }).waitFor();
      await page.getByText('Destroy this stream').click();
      await page.getByLabel('Type the stream').fill('from-browser');
      await page.getByRole('button', { name: 'Destroy' }).click();
      await page.getByRole('status').filter({ hasText: 'destroy is done' }).waitFor();
      await sound(page);
      await page.context().close();
    });

    test('messages-that-pass-a-stage-are-shown', { skip: NO_STREAMS }, async () => {
      const page = await open(browser);
      await page.goto(`${plain.url}/streams/ticks`);
      await page.getByRole('link', { name: 'filter', exact: true }).click();
      await page.locator('#passed article').first().waitFor();
      const first = await page.locator('#passed article').first().innerText();
      assert.match(first, /Value/);
      await page.waitForFunction((before) => document.querySelector('#passed article').innerText !== before, first);
      page.expected.push(/404/);
      await page.goto(`${plain.url}/streams/ticks/taps/${encodeURIComponent(HOSTILE)}`);
      assert.match(await page.getByRole('alert').innerText(), /no stage .*use one of time, filter/s);
      await sound(page);
      await page.context().close();
    });

    test('lag-and-throughput-have-a-history', async () => {
      const page = await open(browser);
      await page.goto(`${plain.url}/group?id=billing`);
      const lag = page.locator('#lag');
      await lag.getByRole('img', { name: /^Lag from .* now [\d,]+ records/ }).waitFor();
      thalweg(plain.bootstrap, ['produce', 'orders'], 'behind\n'.repeat(50));
      const before = await lag.locator('figcaption').innerText();
      await page.waitForFunction((before) => document.querySelector('#lag figcaption').innerText !== before, before);
      await shoot(page, 'lag');
      await lag.getByText('Values').click();
      assert.ok(await lag.getByRole('row').count() > 2);
      await accessible(page, 'lag, as a table');
      await page.goto(plain.url);
      await page.locator('#throughput').getByRole('img', { name: /^Records in from/ }).waitFor();
      await page.locator('#throughput').getByRole('img', { name: /^Log growth from/ }).waitFor();
      await sound(page);
      await page.context().close();
    });

    test('workload-is-started-watched-stopped-and-compared', { timeout: 240_000 }, async () => {
      const page = await open(browser);
      page.setDefaultTimeout(90_000);
      await page.goto(`${plain.url}/lab`);
      const begin = async (target, scale) => {
        await page.getByRole('radio', { name: /^quick/ }).check();
        await page.getByRole('combobox', { name: 'Target' }).selectOption(target);
        await page.getByRole('textbox', { name: 'Scale' }).fill(scale);
        await page.getByLabel('Repetitions', { exact: true }).fill('1');
        await page.getByRole('button', { name: 'Start' }).click();
        await page.getByRole('status').filter({ hasText: 'was started' }).waitFor();
      };
      await page.getByRole('textbox', { name: 'Scale' }).fill('a lot');
      page.expected.push(/400/);
      await page.getByRole('button', { name: 'Start' }).click();
      assert.match(await page.getByRole('alert').innerText(), /a lot.*is not a number/);
      await begin('cluster', '0.3');
      const second = await post(plain.url, '/lab', { workload: 'quick', target: 'embedded' });
      assert.equal(second.status, 409, 'one run at a time');
      await page.getByText('Running: quick').waitFor();
      await page.locator('#run .figure', { hasText: 'Produced' }).waitFor();
      await page.locator('#run-rate').or(page.locator('#run-lines')).first().waitFor();
      await accessible(page, 'lab, running');
      await shoot(page, 'lab-running');
      await page.getByText('complete', { exact: true }).waitFor();
      await begin('embedded', '2');
      await page.locator('#run .figure', { hasText: 'Produced' }).waitFor();
      await page.getByRole('button', { name: 'Stop' }).click();
      await page.getByRole('status').filter({ hasText: 'ends' }).waitFor();
      await page.getByText('incomplete', { exact: true }).waitFor();
      await page.reload();
      await page.getByRole('button', { name: 'Compare' }).waitFor();
      await accessible(page, 'lab, with results');
      await shoot(page, 'lab-results');
      const names = await page.locator('select[name=a] option').allInnerTexts();
      assert.equal(names.length, 2, names.join(', '));
      const finished = names.find((name) => name.endsWith('-cluster'));
      await page.goto(`${plain.url}/lab/compare?a=${finished}&b=${finished}`);
      await page.getByRole('row', { name: /no difference|not judged/ }).first().waitFor();
      await accessible(page, 'comparison');
      await shoot(page, 'lab-comparison');
      const report = await page.goto(`${plain.url}/lab/results/${finished}`);
      assert.match(report.headers()['content-security-policy'], /^sandbox; default-src 'none'/);
      assert.match(await page.title(), /Thalweg lab: quick/);
      await shoot(page, 'lab-report');
      await page.goto(`${plain.url}/lab`);
      const row = page.getByRole('row', { name: finished });
      await row.getByText('Delete').first().click();
      await row.getByRole('button', { name: 'Delete the result' }).click();
      await page.getByRole('status').filter({ hasText: 'was deleted' }).waitFor();
      assert.equal(await page.getByRole('row', { name: finished }).count(), 0);
      await sound(page);
      await page.context().close();
    });

    test('quota-and-user-are-set-and-removed', async () => {
      const page = await open(browser);
      await page.goto(`${plain.url}/quotas`);
      await page.getByText('Set a quota').click();
      await page.getByLabel('User', { exact: true }).fill('alice');
      await page.getByLabel('Value').fill('1048576');
      await page.getByRole('button', { name: 'Set', exact: true }).click();
      await page.getByRole('status').filter({ hasText: 'was set' }).waitFor();
      await page.reload();
      await shoot(page, 'quotas-filled');
      await page.getByRole('link', { name: 'Remove producer_byte_rate of alice' }).click();
      await page.getByLabel('Type alice').fill('alice');
      await page.getByRole('button', { name: 'Remove this quota' }).click();
      await page.getByRole('status').filter({ hasText: 'thalweg quota set --user alice' }).waitFor();
      await page.goto(`${plain.url}/users`);
      await page.getByText('Set a password').click();
      await page.getByLabel('User', { exact: true }).fill('alice');
      await page.getByLabel('Password').fill('alice-secret');
      await page.getByRole('button', { name: 'Set', exact: true }).click();
      await page.getByRole('status').filter({ hasText: 'new password' }).waitFor();
      await page.getByRole('link', { name: 'Remove the SCRAM-SHA-512 password of alice' }).click();
      await page.getByLabel('Type alice').fill('alice');
      await page.getByRole('button', { name: 'Remove this password' }).click();
      await page.getByRole('status').filter({ hasText: 'no password' }).waitFor();
      await sound(page);
      await page.context().close();
    });

    test('answers-forbid-what-is-not-their-own', async () => {
      for (const path of ['/', '/topics', '/login', '/nowhere', '/api/v1/cluster', '/assets/console.js']) {
        const { headers } = await ask(plain.url, 'GET', path);
        assert.match(headers.get('content-security-policy'), /default-src 'none'; script-src 'self'; style-src 'self'.*frame-ancestors 'none'/, path);
        assert.equal(headers.get('x-frame-options'), 'DENY', path);
        assert.equal(headers.get('x-content-type-options'), 'nosniff', path);
      }
    });

    test('other-sites-change-nothing', async () => {
      const form = 'application/x-www-form-urlencoded';
      for (const headers of [
        { 'content-type': form, origin: 'http://evil.example' }, { 'content-type': form }, { 'content-type': 'text/plain' },
        { 'content-type': 'application/json', origin: 'null' }, { 'content-type': form, 'sec-fetch-site': 'same-site', origin: plain.url },
      ]) {
        const answer = await ask(plain.url, 'POST', '/create-topic', headers, 'name=evil');
        assert.equal(answer.status, 403, JSON.stringify(headers));
      }
      assert.equal((await ask(plain.url, 'GET', '/topics/evil')).status, 404);
      const page = await open(browser);
      await page.setContent(`<form method=post action="${plain.url}/create-topic"><input name=name value=evil><button>go</button></form>`);
      page.expected.push(/403/);
      await page.getByRole('button').click();
      await page.getByText('not from other sites').waitFor();
      await page.context().close();
    });

    test('paths-of-health-are-open', async () => {
      for (const path of ['/livez', '/readyz', '/healthz']) {
        const answer = await ask(plain.url, 'GET', path);
        assert.equal(answer.status, 200);
        assert.equal(await answer.text(), 'ok\n');
      }
    });

    test('login-is-of-the-cluster', async () => {
      const secured = await node(['group.initial.rebalance.delay.ms=0'], ['--secure=DIRECTORY/security']);
      try {
        const properties = readFileSync(join(secured.directory, 'security', 'client.properties'), 'utf8');
        const password = /password="([^"]+)"/.exec(properties)[1];
        const page = await open(browser);
        await page.goto(`${secured.url}/topics?filter=x`);
        assert.match(page.url(), /\/login\?next=/);
        await accessible(page, 'login');
        await shoot(page, 'login');
        await page.getByLabel('User').fill('admin');
        await page.getByLabel('Password').fill('wrong');
        page.expected.push(/401/);
        await page.getByRole('button', { name: 'Log in' }).click();
        await page.getByRole('alert').filter({ hasText: 'does not take' }).waitFor();
        await page.getByLabel('Password').fill(password);
        await page.getByRole('button', { name: 'Log in' }).click();
        await page.waitForURL(/\/topics\?filter=x/);
        const cookies = await page.context().cookies();
        assert.ok(cookies.every((cookie) => cookie.httpOnly && cookie.secure && cookie.sameSite === 'Strict'), JSON.stringify(cookies));
        await page.goto(`${secured.url}/acls`);
        await page.getByText('Add an ACL').click();
        await page.getByLabel('Principal').last().fill('User:ann');
        await page.getByLabel('Resource').last().fill('orders');
        await page.getByLabel('Operation').selectOption('READ');
        await page.getByRole('button', { name: 'Add' }).click();
        await page.getByRole('status').filter({ hasText: 'User:ann now' }).waitFor();
        await accessible(page, 'acls');
        await shoot(page, 'acls');
        await page.getByRole('link', { name: 'Who may do what' }).click();
        await page.getByLabel('Principal').fill('User:ann');
        await page.getByLabel('Resource').fill('orders');
        await page.getByRole('button', { name: 'Show' }).click();
        const read = page.locator('tr', { hasText: 'READ' }).first();
        assert.match(await read.innerText(), /allowed.*ALLOW READ on TOPIC orders/s);
        assert.match(await page.locator('tr', { hasText: 'WRITE' }).first().innerText(), /denied.*No ACL matches/s);
        await accessible(page, 'rights');
        await shoot(page, 'rights');
        await page.goto(`${secured.url}/acls`);
        await page.locator('tr', { hasText: 'User:ann' }).getByRole('link', { name: /^Delete/ }).click();
        await page.getByLabel('Type User:ann').fill('User:ann');
        await accessible(page, 'delete-acl');
        await page.getByRole('button', { name: 'Delete this ACL' }).click();
        await page.getByRole('status').filter({ hasText: 'No more for User:ann' }).waitFor();
        await page.getByRole('button', { name: 'Log out' }).click();
        await page.waitForURL(/\/login/);
        await page.goto(`${secured.url}/topics`);
        assert.match(page.url(), /\/login/);
        await sound(page);
        await page.context().close();
      } finally {
        await remove(secured);
      }
    });

    test('another-cluster-read-only', async () => {
      const bootstrap = process.env.BOOTSTRAP || plain.bootstrap;
      const other = await consoleOf(bootstrap, ['--read-only']);
      try {
        const page = await open(browser);
        for (const path of ['/', '/topics', '/groups', '/transactions', '/brokers', '/brokers/1', '/quorum', '/quotas', '/users']) {
          const answer = await page.goto(other.url + path);
          assert.equal(answer.status(), 200, `${path}: ${await page.locator('main').innerText()}`);
          assert.equal(await page.locator('main form[method=post]').count(), 0, path);
        }
        await shoot(page, 'read-only');
        const answer = await post(other.url, '/create-topic', { name: 'refused' });
        assert.equal(answer.status, 403);
        assert.match(await answer.text(), /read-only/);
        await sound(page);
        await page.context().close();
      } finally {
        await other.stop();
      }
    });
  });

  describe('messages and tasks', { concurrency: 1 }, () => {
    messagePages(() => ({ browser, plain }));

    taskPages(() => ({ browser, plain }));
  });
});
