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
  if (process.argv.indexOf('up') > 0) keepHeapSmall();
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

// V8 lets the young part of the heap grow to 64 MB under load, and keeps it. A gateway needs 8 MB of it, and has 40 MB less after a
// thousand messages. V8 takes the limit before any script runs, but the rate of growth at any time: so it grows to 8 MB now, and then no more.
function keepHeapSmall() {
  var v8 = require('v8');
  var isYoung = function (space) {
    return space.space_name === 'new_space';
  };
  var isSmall = function () {
    var young = v8.getHeapSpaceStatistics().find(isYoung);
    return young !== undefined && young.space_size < 8 * 1024 * 1024;
  };
  v8.setFlagsFromString('--semi-space-growth-factor=4');
  var kept = [];
  for (var round = 0; round < 100 && isSmall(); round++) {
    for (var i = 0; i < 200; i++) kept.push(Array.from({ length: 100 }));
  }
  v8.setFlagsFromString('--semi-space-growth-factor=1');
}
