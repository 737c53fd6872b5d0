#include "gyre/metrics/news.h"

#include <nlohmann/json.hpp>

namespace gyre::metrics {

using Json = nlohmann::json;

std::string to_line(const News& news) {
  Json json = {{"kind", static_cast<int>(news.kind)},
               {"rank", news.rank},
               {"process", news.process},
               {"code", news.code},
               {"signal", news.signal},
               {"asked", news.asked},
               {"time_us", news.time_us},
               {"text", news.text}};
  if (!news.host.empty()) json["host"] = news.host;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::optional<News> parse_news(std::string_view line) {
  try {
    const Json json = Json::parse(line);
    const int kind = json.at("kind").get<int>();
    if (kind < 0 || kind > static_cast<int>(News::Kind::kPreparing)) return std::nullopt;
    return News{.kind = static_cast<News::Kind>(kind),
                .rank = json.at("rank").get<int>(),
                .process = json.at("process").get<int>(),
                .code = json.at("code").get<int>(),
                .signal = json.at("signal").get<int>(),
                .asked = json.at("asked").get<bool>(),
                .time_us = json.at("time_us").get<std::int64_t>(),
                .text = json.at("text").get<std::string>(),
                .host = json.value("host", std::string())};
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

}  // namespace gyre::metrics
