package query

// Foreign returns the names of what a server knows and this one does not, by what they are.
func Foreign() map[string][]string {
	return map[string][]string{
		"the query operator …": foreignFilters, "the expression …": foreignExpressions, "the stage …": foreignStages, "the accumulator …": foreignAccumulators,
	}
}

// With these a refusal can report whether a server knows the name.
var (
	foreignFilters = []string{
		"$where", "$text", "$near", "$nearSphere", "$geoWithin", "$geoIntersects", "$within", "$geoNear", "$maxDistance", "$minDistance", "$sampleRate",
	}
	foreignExpressions = []string{
		"$function", "$accumulator", "$meta", "$toUUID", "$toHashedIndexKey", "$sampleRate", "$atan2", "$asinh", "$acosh", "$atanh",
		"$median", "$percentile", "$stdDevPop", "$stdDevSamp", "$encStrStartsWith", "$encStrEndsWith", "$encStrContains",
		"$encStrNormalizedEq", "$toArray", "$toObject", "$sigmoid", "$createObjectId", "$hash", "$hexHash", "$serializeEJSON", "$deserializeEJSON",
	}
	foreignStages = []string{
		"$setWindowFields", "$densify", "$fill", "$geoNear", "$search", "$searchMeta", "$vectorSearch", "$rankFusion", "$scoreFusion", "$score",
		"$planCacheStats", "$listSessions", "$listLocalSessions", "$listSampledQueries", "$listSearchIndexes", "$shardedDataDistribution",
		"$collStats", "$indexStats", "$querySettings", "$queryStats", "$listClusterCatalog", "$listCatalog",
		"$operationMetrics",
	}
	foreignAccumulators = []string{
		"$accumulator", "$bottom", "$bottomN", "$top", "$topN", "$median", "$percentile", "$stdDevPop", "$stdDevSamp", "$concatArrays", "$setUnion",
	}
)
