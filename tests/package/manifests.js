// manifests.js FILE…: checks each Kubernetes manifest against the schema of its kind (npm: kubernetes-models).
import fs from "node:fs";
import * as yaml from "js-yaml";

for (const file of process.argv.slice(2)) {
  for (const manifest of yaml.loadAll(fs.readFileSync(file, "utf8"))) {
    const kinds = await import(`kubernetes-models/${manifest.apiVersion}`);
    new kinds[manifest.kind](manifest).validate();
    console.log(`${file}: ${manifest.kind} ${manifest.metadata.name} is valid`);
  }
}
