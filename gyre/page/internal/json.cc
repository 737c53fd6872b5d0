#include "gyre/page/internal/json.h"

namespace gyre::page::internal {

std::string text_of(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace gyre::page::internal
