# Starts MongoDB and makes it a replica set of one member (demo-mongodb.bicep).
mongod --replSet demo --bind_ip_all --wiredTigerCacheSizeGB 0.25 &
until mongosh --quiet --eval 'try { rs.status() } catch (e) { rs.initiate({_id: "demo", members: [{_id: 0, host: "localhost:27017"}]}) }'; do
  sleep 1
done
wait
