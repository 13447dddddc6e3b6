#!/usr/bin/env node
// Starts Interlane. Written so that an old Node can still read it and say which one is needed.
'use strict';
var fs = require('fs');
var path = require('path');
var needed = 24;
var found = process.versions.node;
var advice = 'Install it from your package manager or nodejs.org, or run "npm install" in a clone, which brings its own.';
if (parseInt(found, 10) < needed) {
  process.stderr.write('interlane: Node.js ' + found + ' is too old; Interlane needs Node.js ' + needed + ' or newer. ' + advice + '\n');
  process.exit(69);
} else {
  keepCompiled();
  var source = path.join(__dirname, '..', 'src', 'main.ts');
  require(fs.existsSync(source) ? source : path.join(__dirname, '..', 'dist', 'main.js'));
}

// What was compiled once is kept in the state directory, if there is one, so that every start after the first is faster.
function keepCompiled() {
  var args = process.argv;
  var state = process.env.INTERLANE_STATE_DIR || path.join(require('os').homedir(), '.interlane');
  for (var i = 2; i < args.length; i++) {
    if (args[i] === '--state-dir' && args[i + 1]) state = args[i + 1];
    else if (args[i].indexOf('--state-dir=') === 0) state = args[i].slice('--state-dir='.length);
  }
  if (fs.existsSync(path.join(state, 'interlane.db'))) require('module').enableCompileCache(path.join(state, 'cache'));
}
