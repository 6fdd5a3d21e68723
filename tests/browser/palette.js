// palette.js FILE.png…: writes each, 8-bit RGB as Chromium makes it, anew in at most 256 colours. That is a third of its size, and the
// eye sees no difference in a page of text.
"use strict";
const fs = require("fs");
const zlib = require("zlib");

function chunksOf(png) {
  const chunks = [];
  for (let at = 8; at < png.length;) {
    const size = png.readUInt32BE(at);
    chunks.push({ name: png.toString("latin1", at + 4, at + 8), data: png.subarray(at + 8, at + 8 + size) });
    at += size + 12;
  }
  return chunks;
}

function chunk(name, data) {
  const body = Buffer.concat([Buffer.from(name, "latin1"), data]), size = Buffer.alloc(4), sum = Buffer.alloc(4);
  size.writeUInt32BE(data.length);
  sum.writeUInt32BE(crc32(body));
  return Buffer.concat([size, body, sum]);
}

function crc32(data) {
  let sum = -1;
  for (const byte of data) {
    sum ^= byte;
    for (let bit = 0; bit < 8; bit++) sum = sum & 1 ? (sum >>> 1) ^ 0xedb88320 : sum >>> 1;
  }
  return ~sum >>> 0;
}

// By left, above and above left, as the PNG specification has it
function paeth(a, b, c) {
  const p = a + b - c, pa = Math.abs(p - a), pb = Math.abs(p - b), pc = Math.abs(p - c);
  return pa <= pb && pa <= pc ? a : pb <= pc ? b : c;
}

function pixelsOf(raw, width, height) {
  const row = 3 * width, pixels = Buffer.alloc(row * height);
  for (let y = 0; y < height; y++)
    for (let x = 0, kind = raw[y * (row + 1)]; x < row; x++) {
      const at = y * row + x, a = x < 3 ? 0 : pixels[at - 3], b = y ? pixels[at - row] : 0, c = x < 3 || !y ? 0 : pixels[at - row - 3];
      pixels[at] = raw[y * (row + 1) + 1 + x] + [0, a, b, (a + b) >> 1, kind === 4 ? paeth(a, b, c) : 0][kind];
    }
  return pixels;
}

// The 256 colours that most pixels have stay as they are; each of the others becomes the one that is nearest to it.
function placesOf(pixels) {
  const counts = new Map(), of = Buffer.alloc(pixels.length / 3), colourAt = i => pixels.readUIntBE(3 * i, 3);
  for (let i = 0; i < of.length; i++) counts.set(colourAt(i), (counts.get(colourAt(i)) ?? 0) + 1);
  const kept = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 256).map(([colour]) => colour);
  const parts = c => [c >> 16, c >> 8 & 255, c & 255];
  const places = new Map(kept.map((colour, place) => [colour, place]));
  for (const colour of counts.keys()) {
    if (places.has(colour)) continue;
    const mine = parts(colour), far = kept.map(other => parts(other).reduce((sum, v, i) => sum + (v - mine[i]) ** 2, 0));
    places.set(colour, far.indexOf(Math.min(...far)));
  }
  for (let i = 0; i < of.length; i++) of[i] = places.get(colourAt(i));
  return { of, colours: Buffer.from(kept.flatMap(parts)) };
}

function pack(png) {
  const chunks = chunksOf(png), head = Buffer.from(chunks[0].data), width = head.readUInt32BE(0), height = head.readUInt32BE(4);
  if (head[8] !== 8 || head[9] !== 2) return png;
  const raw = zlib.inflateSync(Buffer.concat(chunks.filter(c => c.name === "IDAT").map(c => c.data)));
  const places = placesOf(pixelsOf(raw, width, height));
  const rows = [];
  for (let y = 0; y < height; y++) rows.push(Buffer.alloc(1), places.of.subarray(y * width, (y + 1) * width));
  head[9] = 3;
  return Buffer.concat([png.subarray(0, 8), chunk("IHDR", head), chunk("PLTE", places.colours),
    chunk("IDAT", zlib.deflateSync(Buffer.concat(rows), { level: 9 })), chunk("IEND", Buffer.alloc(0))]);
}

for (const path of process.argv.slice(2)) fs.writeFileSync(path, pack(fs.readFileSync(path)));
