#include "gyre/data/split_names.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

namespace gyre::data {
namespace {

struct Name {
  std::string_view name;
  Split split;
};
constexpr std::array kNames = {
    Name{"train", Split::kTraining},        Name{"training", Split::kTraining},
    Name{"val", Split::kValidation},        Name{"valid", Split::kValidation},
    Name{"validation", Split::kValidation}, Name{"test", Split::kTest},
    Name{"testing", Split::kTest},          Name{"t10k", Split::kTest},
};

}  // namespace

std::optional<Split> split_of(std::string_view name) {
  std::string lower(name);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const auto* const found = std::ranges::find(kNames, lower, &Name::name);
  if (found == kNames.end()) return std::nullopt;
  return found->split;
}

}  // namespace gyre::data
