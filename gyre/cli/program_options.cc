#include "gyre/cli/program_options.h"

#include <fmt/format.h>

#include <string_view>

#include "gyre/cli/option_table.h"
#include "gyre/cli/suggest.h"

namespace gyre::cli {
namespace {

constexpr std::string_view kTableOption = "--option-table";
constexpr int kUsageError = 2;

/// What is wrong with the first word that is neither an option nor an option's value.
std::string describe_extra(const CLI::App& app) {
  const std::string word = app.remaining().front();
  if (!word.starts_with('-')) return fmt::format("'{}' is neither an option nor an option's value", word);
  return no_such_option(word.substr(0, word.find('=')), option_names(app));
}

}  // namespace

std::optional<int> parse_program_options(CLI::App& app, int argc, const char* const* argv,
                                         const std::function<void()>& complete) {
  if (argc == 2 && std::string_view(argv[1]) == kTableOption) {
    fmt::print("{}\n", option_table(app).dump());
    return 0;
  }
  try {
    app.parse(argc, argv);
    complete();
  } catch (const CLI::ExtrasError&) {
    fmt::print(stderr, "{0}: {1}\nSee `{0} --help`.\n", app.get_name(), describe_extra(app));
    return kUsageError;
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "{0}: {1}\nSee `{0} --help`.\n", app.get_name(), error.what());
    return kUsageError;
  }
  return std::nullopt;
}

}  // namespace gyre::cli
