// Starts `morello lsp` and passes on what it answers.
const { workspace } = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

exports.activate = () => {
    const [command, ...args] = workspace.getConfiguration("morello").get("command");
    client = new LanguageClient("morello", "Morello", { command, args }, { documentSelector: [{ language: "morello" }] });
    return client.start();
};

exports.deactivate = () => client?.stop();
