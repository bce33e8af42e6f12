// Starts `rlpipe lsp` for YAML and TOML. The server itself leaves alone what is no pipeline.

const { workspace } = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

exports.activate = () => {
  const settings = workspace.getConfiguration("rlpipe");
  client = new LanguageClient(
    "rlpipe",
    "rlpipe",
    { command: settings.get("path"), args: ["lsp"] },
    {
      documentSelector: ["yaml", "toml"].flatMap((language) => [
        { scheme: "file", language },
        { scheme: "untitled", language },
      ]),
      initializationOptions: { environment: settings.get("environment") },
    },
  );
  return client.start();
};

exports.deactivate = () => client?.stop();
