// Compiles every Kusto query of infra with Microsoft's language service: names, types, syntax. Run by scripts/lint-infra.sh.
// What it cannot say is whether the rows are there; tests/deploy holds the fields against the services.
'use strict';
const fs = require('fs');
const path = require('path');
const vm = require('vm');

const service = path.dirname(require.resolve('@kusto/language-service-next/Kusto.Language.Bridge.min.js'));
for (const file of ['bridge.min.js', 'Kusto.Language.Bridge.min.js']) {
  vm.runInThisContext(fs.readFileSync(path.join(service, file), 'utf8'), { filename: file });
}

// The tables, with the columns that we use, as the Azure Monitor reference has it.
const table =
  'let ContainerAppConsoleLogs = datatable(TimeGenerated: datetime, ContainerAppName: string, ContainerGroupName: string, ' +
  'RevisionName: string, Log: string, Stream: string)[];\n' +
  'let ContainerAppSystemLogs = datatable(TimeGenerated: datetime, ContainerAppName: string, RevisionName: string, Log: string)[];\n';
const values = { producer: 'ca-producer-x', projector: 'ca-projector-x', oplogMinutes: '1440' };

// problems lists what is wrong with a query; the column, if given, must come out of it as a number.
function problems(query, column) {
  const text = table + query.replace(/\{\{(\w+)\}\}/g, (_, name) => values[name]);
  const code = Kusto.Language.KustoCode.ParseAndAnalyze(text, Kusto.Language.GlobalState.Default);
  const found = [];
  const diagnostics = code.GetDiagnostics();
  for (let i = 0; i < diagnostics.Count; i++) {
    const d = diagnostics.getItem(i);
    found.push(`${d.Code}: ${d.Message} (${JSON.stringify(text.substr(d.Start, d.Length))})`);
  }
  if (column) {
    const columns = code.ResultType.Columns;
    let type = 'missing';
    for (let i = 0; i < columns.Count; i++) {
      if (columns.getItem(i).Name === column) type = columns.getItem(i).Type.Name;
    }
    if (type !== 'long' && type !== 'real') found.push(`the measured column ${column} is ${type}`);
  }
  return found;
}

const infra = path.join(__dirname, '../../../infra');
const queries = [];
const alerts = ['modules/alerts.bicep', 'app/producer.bicep', 'app/projector.bicep']
  .map((file) => fs.readFileSync(path.join(infra, file), 'utf8'))
  .join('\n');
for (const m of alerts.matchAll(/queries\/([\w-]+\.kql)'\)\s+column: '(\w+)'/g)) {
  queries.push([m[1], fs.readFileSync(path.join(infra, 'queries', m[1]), 'utf8'), m[2]]);
}
const expected = fs.readdirSync(path.join(infra, 'queries')).length;
for (const item of JSON.parse(fs.readFileSync(path.join(infra, 'workbook.json'), 'utf8')).items) {
  if (item.type === 3) queries.push([`workbook: ${item.name}`, item.content.query]);
}

let failed = queries.length <= expected; // as many alerts as files, and a workbook besides
if (problems('ContainerAppConsoleLogs | where NoSuchColumn == 1').length === 0) {
  console.error('kusto: the language service finds nothing in a query that is wrong');
  failed = true;
}
for (const [name, query, column] of queries) {
  for (const problem of problems(query, column)) {
    console.error(`kusto: ${name}: ${problem}`);
    failed = true;
  }
}
console.log(`kusto: ${queries.length} queries compiled`);
process.exit(failed ? 1 : 0);
