// Lines of an agent come through ssh, among whatever else that prints: any bytes must be words, or nothing.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "gyre/launch/internal/hosts/agent_words.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr int kRanks = 8;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto words = gyre::launch::parse_from_agent(std::string(gyre::launch::kFromAgent) + std::string(text), kRanks);
  if (words && words->ended && (words->ended->rank < 0 || words->ended->rank >= kRanks)) std::abort();
  // What is understood can be said again.
  if (words) static_cast<void>(gyre::launch::to_line(*words));
  static_cast<void>(gyre::launch::parse_to_agent(text));
  return 0;
}
