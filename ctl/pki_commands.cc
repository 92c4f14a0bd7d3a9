#include "ctl/pki_commands.h"

#include <fmt/format.h>

#include <ctime>
#include <memory>
#include <vector>

#include "pki/authority.h"
#include "pki/certificate.h"

namespace tern::ctl {
namespace {

constexpr int kAuthorityDays = 3650;
constexpr int kNodeDays = 365;
constexpr int kMaxDays = 36'500;

struct Given {
  std::string path;
  std::string name = "Tern cluster";
  std::string folder;
  std::vector<std::string> names;
  int days = 0;  // 0: as usual
};

pki::Validity days(const Given& given, int usual) {
  return pki::valid_for_days(given.days > 0 ? given.days : usual);
}

Result<std::string> init_authority(const Given& given) {
  const auto files = pki::make_authority(given.path, given.name, days(given, kAuthorityDays));
  if (!files) return tl::unexpected(files.error());
  return fmt::format(
      "{}  goes to every node, tls_ca_file\n{}  stays here, closed: who has it can join\n",
      files->certificate, files->key);
}

Result<std::string> issue(const Given& given) {
  const std::string& folder = given.folder.empty() ? given.path : given.folder;
  const auto files = pki::issue({given.path, folder, given.names, days(given, kNodeDays)});
  if (!files) return tl::unexpected(files.error());
  return fmt::format(
      "{}  goes to the node, tls_certificate_file\n{}  goes there too, tls_key_file: for the "
      "daemon's user alone\n",
      files->certificate, files->key);
}

Result<std::string> new_key(const Given& given) {
  if (auto made = pki::make_cluster_key(given.path); !made) return tl::unexpected(made.error());
  return given.path + "  goes to every node, cluster_key_file: for the daemon's user alone\n";
}

Result<std::string> show(const Given& given) {
  const auto certificates = pki::read_certificates(given.path);
  if (!certificates) return tl::unexpected(certificates.error());
  const std::int64_t now = std::time(nullptr);
  std::string text;
  for (const pki::CertificateFacts& one : *certificates) {
    const char* const state = now >= one.not_after_s   ? "  EXPIRED"
                              : now < one.not_before_s ? "  NOT YET VALID"
                                                       : "";
    text += fmt::format(
        "{}{}\n  names       {}\n  issued by   {}\n  valid from  {}\n  until       {}{}\n",
        one.subject, one.is_authority ? " (authority)" : "", pki::names_text(one), one.issuer,
        pki::date_text(one.not_before_s), pki::date_text(one.not_after_s), state);
  }
  return text;
}

void add_days(CLI::App& command, Given& given, int usual) {
  command.add_option("--days", given.days, "How long it is valid")
      ->check(CLI::Range(1, kMaxDays))
      ->default_str(std::to_string(usual))
      ->type_name("DAYS");
}

}  // namespace

void add_pki_commands(CLI::App& app, PkiAction& action) {
  // The parser writes into it, and what is asked for reads it.
  const auto given = std::make_shared<Given>();
  CLI::App* const pki =
      app.add_subcommand("pki", "Makes certificates and keys for the links between nodes");
  pki->require_subcommand(1);
  const auto add = [&](const char* name, const char* help,
                       Result<std::string> (*run)(const Given&)) {
    CLI::App* const command = pki->add_subcommand(name, help);
    command->callback([&action, given, run] { action = [given, run] { return run(*given); }; });
    return command;
  };

  CLI::App* const init = add("init-ca", "Makes the authority of a cluster", init_authority);
  init->add_option("folder", given->path, "Where ca.pem and ca.key are written")
      ->required()
      ->type_name("FOLDER");
  init->add_option("--name", given->name, "The authority's name")->capture_default_str();
  add_days(*init, *given, kAuthorityDays);

  CLI::App* const one = add("issue", "Makes a node's certificate", issue);
  one->add_option("folder", given->path, "The authority's folder")->required()->type_name("FOLDER");
  one->add_option("names", given->names,
                  "By what other nodes dial it: the host of `advertise`, a name or an address")
      ->required()
      ->type_name("NAME...");
  one->add_option("--out", given->folder, "Where to write; else in the authority's folder")
      ->type_name("FOLDER");
  add_days(*one, *given, kNodeDays);

  add("new-key", "Makes a cluster key, for peer_security = \"key\"", new_key)
      ->add_option("file", given->path, "Where it is written")
      ->required()
      ->type_name("FILE");
  add("show", "Says for whom and until when certificates are", show)
      ->add_option("file", given->path, "Certificates in PEM")
      ->required()
      ->type_name("FILE");
}

}  // namespace tern::ctl
