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
  var source = path.join(__dirname, '..', 'src', 'main.ts');
  require(fs.existsSync(source) ? source : path.join(__dirname, '..', 'dist', 'main.js'));
}
