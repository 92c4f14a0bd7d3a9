#include "daemon/config/documents.h"

#include <fmt/format.h>

#include "daemon/config/settings.h"

namespace tern::daemon {
namespace {

std::string default_markdown(const Config& defaults, const Setting& setting) {
  const std::string text = value_toml(defaults, setting);
  return fmt::format("`{}`", text);
}

// What troff would take for a request or an escape means itself.
std::string troff(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\' || c == '-') escaped += '\\';
    escaped += c == '\\' ? 'e' : c;
  }
  if (escaped.starts_with('.') || escaped.starts_with('\'')) escaped.insert(0, "\\&");
  return escaped;
}

}  // namespace

std::string sample_config() {
  const Config defaults;
  std::string text =
      "# Settings of ternd. Every line is commented out at its default. Sizes are written with B, "
      "KiB,\n"
      "# MiB or GiB, times with us, ms, s, min or h. SIGHUP reads the file again; settings marked\n"
      "# \"restart\" wait for the next start.\n";
  std::string_view section;
  for (const Setting& row : settings()) {
    if (row.section != section) {
      section = row.section;
      text += fmt::format("\n[{}]\n", section);
    }
    text += fmt::format("# {}\n# Allowed: {}.{}\n#{} = {}\n", row.help, allowed_values(row),
                        row.reloadable ? "" : " Restart.", row.name, value_toml(defaults, row));
  }
  return text;
}

std::string settings_markdown() {
  const Config defaults;
  std::string text =
      "# Settings\n\n"
      "This page is printed by `ternd --print-settings-markdown`; a test compares the two.\n\n"
      "`ternd --config FILE` reads the settings from a TOML file, where each belongs in the table "
      "that\n"
      "heads its section here; `ternd --print-sample-config` prints such a file. On the command "
      "line every\n"
      "setting is an option with `-` for `_`, as in `--op-timeout 5s`, and goes before the "
      "file.\n\n"
      "Sizes are whole numbers with `B`, `KiB`, `MiB`, `GiB` or `TiB`; times with `ns`, `us`, "
      "`ms`, `s`,\n"
      "`min` or `h`. A file with a mistake is refused as a whole, and every mistake is named by "
      "file, line\n"
      "and column. *Reload* says whether SIGHUP is enough for a change or a restart is needed.\n";
  std::string_view section;
  for (const Setting& row : settings()) {
    if (row.section != section) {
      section = row.section;
      text += fmt::format(
          "\n## [{}]\n\n| setting | default | allowed | reload | meaning "
          "|\n|---|---|---|---|---|\n",
          section);
    }
    text += fmt::format("| `{}` | {} | {} | {} | {} |\n", row.name, default_markdown(defaults, row),
                        allowed_values(row), row.reloadable ? "yes" : "restart", row.help);
  }
  return text;
}

std::string settings_manual(std::string_view version) {
  const Config defaults;
  std::string text = fmt::format(
      ".TH TERND.TOML 5 \"\" \"Tern {}\" \"Tern Manual\"\n"
      ".SH NAME\nternd.toml \\- settings of the Tern daemon\n"
      ".SH DESCRIPTION\n"
      "A TOML file that\n.BR ternd (8)\nreads when it is given with\n.BR \\-\\-config .\n"
      "Each setting belongs in the table that heads its section here. Sizes are whole numbers "
      "with\n"
      "B, KiB, MiB, GiB or TiB; times with ns, us, ms, s, min or h. A file with a mistake is "
      "refused\n"
      "as a whole, and every mistake is named by file, line and column.\n"
      ".PP\n"
      "SIGHUP reads the file again. Settings marked\n.I restart\nwait for the next start.\n"
      ".SH SETTINGS\n",
      version);
  std::string_view section;
  for (const Setting& row : settings()) {
    if (row.section != section) {
      section = row.section;
      text += fmt::format(".SS [{}]\n", section);
    }
    text += fmt::format(".TP\n\\fB{}\\fR = {}\n{}\nAllowed: {}.{}\n", row.name,
                        troff(value_toml(defaults, row)), troff(row.help),
                        troff(allowed_values(row)), row.reloadable ? "" : "\n.I Restart.");
  }
  return text + ".SH SEE ALSO\n.BR ternctl (1),\n.BR ternd (8)\n";
}

}  // namespace tern::daemon
