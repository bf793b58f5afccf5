package query

// What a server knows and this one does not, so that a refusal can say which of the two it is.
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
		"$collStats", "$indexStats", "$querySettings", "$queryStats", "$listClusterCatalog",
	}
	foreignAccumulators = []string{
		"$accumulator", "$bottom", "$bottomN", "$top", "$topN", "$median", "$percentile", "$stdDevPop", "$stdDevSamp", "$concatArrays", "$setUnion",
	}
)
